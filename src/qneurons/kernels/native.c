/* q-activations on the CPU: noise, value and slope in one pass, from pointers and sizes alone.
 *
 * The work is cut as the noise is (noise.py): a block of 4096 elements of a group is 512 Philox
 * calls of 8 slots, and slot s of call c belongs to element 512 s + c. Every loop runs over the 512
 * elements of a slot, without a branch, a call or a remainder, and is vectorised by the compiler.
 * The form of a row is chosen for a slot as a whole. So the bits of an element may depend on its
 * slot, but neither on threads nor on other groups.
 */

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "native_math.h"
#include "native_rows.h"

#define CALLS 512
#define BLOCK (8 * CALLS)
#define TINY_DELTA 0x1p-40f
#define LARGEST_NORMAL 5.65f /* of the noise: sqrt(46 log(2)) = 5.647 */

/* --- noise ---------------------------------------------------------------------------------- */

/* Lanes of 64 bits, of which Philox needs the low halves. The compiler would multiply all 64. */
#if defined(__AVX512F__)
typedef uint64_t Lanes __attribute__((vector_size(64)));
static inline Lanes multiply(Lanes a, Lanes b) {
    return (Lanes)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}
#elif defined(__AVX2__)
typedef uint64_t Lanes __attribute__((vector_size(32)));
static inline Lanes multiply(Lanes a, Lanes b) {
    return (Lanes)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
#elif defined(__SSE2__)
typedef uint64_t Lanes __attribute__((vector_size(16)));
static inline Lanes multiply(Lanes a, Lanes b) {
    return (Lanes)_mm_mul_epu32((__m128i)a, (__m128i)b);
}
#else
typedef uint64_t Lanes __attribute__((vector_size(16)));
static inline Lanes multiply(Lanes a, Lanes b) { return (a & 0xffffffff) * (b & 0xffffffff); }
#endif

enum { NUM_LANES = sizeof(Lanes) / 8 };

/* Philox4x32-7 of the calls that ``counter`` holds, one a lane. */
static inline void philox(Lanes counter, uint64_t high, uint64_t seed, Lanes words[4]) {
    const Lanes zero = {0}, m0 = zero + 0xD2511F53, m1 = zero + 0xCD9E8D57;
    Lanes c0 = counter, c1 = zero + high, c2 = zero, c3 = zero;
    uint32_t k0 = seed, k1 = seed >> 32;
    for (int number = 0; number < 7; number++, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
        Lanes p0 = multiply(m0, c0), p1 = multiply(m1, c2);
        c0 = p1 >> 32 ^ c1 ^ (uint64_t)k0;
        c2 = p0 >> 32 ^ c3 ^ (uint64_t)k1;
        c1 = p1;
        c3 = p0;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

static void draw_words(uint64_t seed, uint64_t block, uint32_t words[restrict 4][CALLS]) {
    uint64_t first = block * CALLS;
    Lanes counter;
    for (int lane = 0; lane < NUM_LANES; lane++) counter[lane] = first + 2 * lane;
    for (int call = 0; call < CALLS; call += 2 * NUM_LANES) {
        Lanes even[4], odd[4];
        philox(counter, first >> 32, seed, even);
        philox(counter + 1, first >> 32, seed, odd);
        for (int i = 0; i < 4; i++) {
            Lanes both = (even[i] & 0xffffffff) | odd[i] << 32;
            memcpy(&words[i][call], &both, sizeof both);
        }
        counter += 2 * NUM_LANES;
    }
}

/* Box and Muller: one word makes two normal numbers. The angle is folded into a quarter of the
   circle before it is multiplied by pi, so that no rounding changes the sign of a number, which
   decides the side of delta. */
static void draw_deltas(const uint32_t words[restrict CALLS], float lam, float floor,
                        float deltas[restrict 2][CALLS]) {
    for (int call = 0; call < CALLS; call++) {
        uint32_t word = words[call], rotated = word >> 19 | word << 13;
        float u = 2 - float_of(0x3f800000 | (rotated & 0x7fffff));
        float angle = float_of(0x40000000 | (word & 0x7fffff)) - 3; /* over pi */
        float radius = lam * __builtin_sqrtf(minus_twice_log(u));
        float from_axis = 0.5f - magnitude(angle), s = 0.5f - magnitude(from_axis);
        float cos = sin_pi(from_axis), sin = with_sign(sin_pi(s), angle);
        float first = radius * cos, second = radius * sin;
        deltas[0][call] = first + with_sign(floor, first);
        deltas[1][call] = second + with_sign(floor, second);
    }
}

/* --- rows ----------------------------------------------------------------------------------- */

typedef void Forward(const float *restrict x, const float *restrict delta, float *restrict out,
                     float first, float second);
typedef void Backward(const float *restrict x, const float *restrict delta,
                      const float *restrict grad, float *restrict out, float first, float second);

/* Each row, its form where delta > -1, and up to which |delta x| that one is right. */
#define ANY FLT_MAX
#define WITHOUT_DELTA INFINITY /* the form does not look at delta */
#define ROWS(DO)                                                                                  \
    DO(identity, q_identity, WITHOUT_DELTA) DO(relu, q_relu, WITHOUT_DELTA)                       \
    DO(leaky_relu, q_leaky_relu, WITHOUT_DELTA) DO(hardtanh, q_hardtanh, ANY)                     \
    DO(relu6, q_relu6, ANY) DO(hardswish, q_hardswish, ANY) DO(elu, small_elu, 3)                 \
    DO(selu, small_selu, 3) DO(celu, small_celu, 3) DO(sigmoid, small_sigmoid, 3)                 \
    DO(tanh, small_tanh, 1.5f) DO(softplus, q_softplus, ANY) DO(silu, small_silu, 3)              \
    DO(gelu, q_gelu, ANY) DO(gelu_tanh, q_gelu_tanh, ANY) DO(mish, q_mish, ANY)                   \
    DO(softsign, q_softsign, ANY) DO(sin, q_sin, ANY) DO(delta, q_delta, ANY)

#define LOOPS(name, form, crossing)                                                               \
    static void forward_##name(const float *restrict x, const float *restrict delta,              \
                               float *restrict out, float first, float second) {                  \
        for (int i = 0; i < CALLS; i++)                                                           \
            out[i] = form(x[i], delta[i], first, second, crossing).value;                         \
    }                                                                                             \
    static void backward_##name(const float *restrict x, const float *restrict delta,             \
                                const float *restrict grad, float *restrict out, float first,     \
                                float second) {                                                   \
        for (int i = 0; i < CALLS; i++)                                                           \
            out[i] = grad[i] * form(x[i], delta[i], first, second, crossing).slope;               \
    }
#define DEFINE(name, form, limit) LOOPS(name, q_##name, 1) LOOPS(small_##name, form, 0)
ROWS(DEFINE)

#define ENTRY(name, form, limit)                                                                  \
    {"q_" #name, forward_##name, backward_##name, limit, forward_small_##name,                    \
     backward_small_##name},
static const struct {
    const char *name;
    Forward *forward;
    Backward *backward;
    float small;
    Forward *small_forward;
    Backward *small_backward;
} TABLE[] = {ROWS(ENTRY)};

#define NUMBER(name, form, limit) ROW_##name,
enum { ROWS(NUMBER) NUM_ROWS };

/* The largest |delta x|, as the bits of a float, which order as integers do; of NaN the largest. */
static uint32_t largest_step(const float *restrict x, const float *restrict delta) {
    uint32_t largest = 0;
    for (int i = 0; i < CALLS; i++) {
        uint32_t bits = bits_of(magnitude(x[i] * delta[i]));
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* --- dtypes --------------------------------------------------------------------------------- */

enum { FLOAT32, FLOAT16, BFLOAT16 };

static inline float from_half(uint16_t half) {
    float size = float_of((uint32_t)(half & 0x7fff) << 13) * 0x1p112f;
    uint32_t bits = bits_of(size) | (size >= 65536 ? 0x7f800000 : 0);
    return float_of(bits | (uint32_t)(half & 0x8000) << 16);
}

static inline uint16_t to_half(float x) {
    uint32_t sign = bits_of(x) >> 16 & 0x8000, bits = bits_of(x) & 0x7fffffff;
    uint32_t normal = (bits + 0xfff + (bits >> 13 & 1) - (112u << 23)) >> 13;
    uint32_t subnormal = bits_of(float_of(bits) + 0.5f) - bits_of(0.5f);
    uint32_t half = bits < 113u << 23 ? subnormal : normal;
    half = bits >= 143u << 23 ? 0x7c00 : half;
    half = bits > 0x7f800000 ? 0x7e00 : half;
    return half | sign;
}

static inline uint16_t to_bfloat(float x) {
    uint32_t bits = bits_of(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded;
}

static void widen(int dtype, const void *from, int64_t offset, int64_t num, float *restrict to) {
    const uint16_t *restrict half = (const uint16_t *)from + offset;
    if (dtype == FLOAT32) memcpy(to, (const float *)from + offset, num * sizeof *to);
    if (dtype == FLOAT16) for (int64_t i = 0; i < num; i++) to[i] = from_half(half[i]);
    if (dtype == BFLOAT16)
        for (int64_t i = 0; i < num; i++) to[i] = float_of((uint32_t)half[i] << 16);
}

static void narrow(int dtype, const float *restrict from, int64_t num, void *to, int64_t offset) {
    uint16_t *restrict half = (uint16_t *)to + offset;
    if (dtype == FLOAT32) memcpy((float *)to + offset, from, num * sizeof *from);
    if (dtype == FLOAT16) for (int64_t i = 0; i < num; i++) half[i] = to_half(from[i]);
    if (dtype == BFLOAT16) for (int64_t i = 0; i < num; i++) half[i] = to_bfloat(from[i]);
}

/* --- the pass ------------------------------------------------------------------------------- */

typedef struct {
    int row, dtype;
    const void *grad, *x; /* grad is NULL in the forward pass */
    void *out;
    const int64_t *seed;
    const float *lam, *phi;
    int64_t groups, inner, per_group;
    float first, second;
    float small; /* up to which |delta x| the forms for small steps serve */
    int64_t blocks_per_group, num_blocks, share;
    _Atomic int64_t next;
} Job;

typedef struct {
    uint32_t words[4][CALLS];
    float deltas[2][CALLS], x[CALLS], grad[CALLS], out[CALLS];
} __attribute__((aligned(64))) Room;

/* Where the position of a group lies, and how many after it follow in memory. */
typedef struct {
    int64_t offset, length;
} Run;

static inline Run run_at(const Job *job, int64_t group, int64_t position, int64_t num) {
    if (job->groups == 1) return (Run){position, num};
    int64_t row = position / job->inner, column = position % job->inner;
    int64_t length = job->inner - column;
    return (Run){(row * job->groups + group) * job->inner + column, length < num ? length : num};
}

static const float *load(const Job *job, const void *from, int64_t group, int64_t position,
                         int64_t num, float *restrict buffer) {
    Run run = run_at(job, group, position, num);
    if (job->dtype == FLOAT32 && run.length == CALLS) return (const float *)from + run.offset;
    for (int64_t done = 0; done < num; done += run.length) {
        run = run_at(job, group, position + done, num - done);
        widen(job->dtype, from, run.offset, run.length, buffer + done);
    }
    memset(buffer + num, 0, (CALLS - num) * sizeof *buffer); /* the choice of form looks at it */
    return buffer;
}

static void apply(const Job *job, int64_t group, int64_t position, int64_t num,
                  const float *restrict delta, float small, Room *room) {
    Run run = run_at(job, group, position, num);
    int direct = job->dtype == FLOAT32 && run.length == CALLS;
    float *out = direct ? (float *)job->out + run.offset : room->out;
    const float *x = load(job, job->x, group, position, num, room->x);
    int is_small = small >= ANY || (small > 0 && largest_step(x, delta) <= bits_of(small));
    if (job->grad == NULL) {
        Forward *row = is_small ? TABLE[job->row].small_forward : TABLE[job->row].forward;
        row(x, delta, out, job->first, job->second);
    } else {
        Backward *row = is_small ? TABLE[job->row].small_backward : TABLE[job->row].backward;
        const float *grad = load(job, job->grad, group, position, num, room->grad);
        row(x, delta, grad, out, job->first, job->second);
    }
    if (direct) return;
    for (int64_t done = 0; done < num; done += run.length) {
        run = run_at(job, group, position + done, num - done);
        narrow(job->dtype, out + done, run.length, job->out, run.offset);
    }
}

static void apply_to_block(const Job *job, int64_t index, Room *room) {
    int64_t group = index / job->blocks_per_group, block = index % job->blocks_per_group;
    float lam = job->lam[group], floor = at_least(*job->phi, TINY_DELTA);
    int crossing = LARGEST_NORMAL * lam + floor >= 1 && job->row != ROW_identity;
    float small = crossing ? 0 : job->small;
    int looks_at_delta = small != WITHOUT_DELTA;
    if (looks_at_delta) draw_words(job->seed[group], block, room->words);
    int64_t left = job->per_group - block * BLOCK, position = block * BLOCK;
    for (int slot = 0; slot < 8 && left > 0; slot++, left -= CALLS, position += CALLS) {
        if (looks_at_delta && slot % 2 == 0)
            draw_deltas(room->words[slot / 2], lam, floor, room->deltas);
        int64_t num = left < CALLS ? left : CALLS;
        apply(job, group, position, num, room->deltas[slot % 2], small, room);
    }
}

static void work(void *argument) {
    Job *job = argument;
    Room room;
    for (;;) {
        int64_t first = atomic_fetch_add(&job->next, job->share), last = first + job->share;
        if (first >= job->num_blocks) return;
        for (int64_t i = first; i < last && i < job->num_blocks; i++) apply_to_block(job, i, &room);
    }
}

/* Memory that the allocator maps afresh each time costs more than the arithmetic, for it is zeroed
   page by page as it is first written. Huge pages, where the system grants them, spare most. */
static void expect_writes(void *out, int64_t num_bytes) {
#if defined(MADV_HUGEPAGE)
    const int64_t mapped_afresh = 1 << 25, page = 4096; /* 32 MiB: glibc reuses what is smaller */
    uintptr_t first = ((uintptr_t)out + page - 1) & -page;
    uintptr_t last = ((uintptr_t)out + num_bytes) & -page;
    if (num_bytes >= mapped_afresh) madvise((void *)first, last - first, MADV_HUGEPAGE);
#endif
}

/* --- what native.py calls ------------------------------------------------------------------- */

/* Runs a function in a team of threads: GOMP_parallel. */
typedef void Team(void (*function)(void *), void *argument, unsigned num_threads, unsigned flags);

void qneurons_apply(int row, int dtype, const void *grad, const void *x, void *out,
                    const int64_t *seed, const float *lam, const float *phi, int64_t num,
                    int64_t groups, int64_t inner, float first, float second, Team *team,
                    int num_threads) {
    if (row == ROW_elu && first == 1) row = ROW_celu; /* the same, without a jump of the slope */
    int64_t per_group = num / groups, blocks_per_group = (per_group + BLOCK - 1) / BLOCK;
    Job job = {.row = row, .dtype = dtype, .grad = grad, .x = x, .out = out,
               .seed = seed, .lam = lam, .phi = phi,
               .groups = groups, .inner = inner, .per_group = per_group,
               .first = first, .second = second,
               .small = row == ROW_celu ? at_most(TABLE[row].small * first, FLT_MAX) : TABLE[row].small,
               .blocks_per_group = blocks_per_group, .num_blocks = groups * blocks_per_group};
    expect_writes(out, num * (dtype == FLOAT32 ? 4 : 2));
    job.share = 1 + (job.num_blocks - 1) / (4 * num_threads);
    if (num_threads > 1) team(work, &job, num_threads, 0);
    else work(&job);
}

const char *qneurons_row(int row) { return row < NUM_ROWS ? TABLE[row].name : NULL; }

/* Of the arguments: a library that was built before they changed is not called. */
int qneurons_version(void) { return 1; }

/* The best build that this processor runs: 2 for AVX-512, 1 for AVX2, 0 for this one. */
int qneurons_best_build(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}
