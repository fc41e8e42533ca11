/* q-activations on the CPU: noise, value and slope in one pass, from pointers and sizes alone.
 *
 * The work is divided as the noise is (noise.py): a block of 4096 elements of a group is 512 Philox
 * calls of 8 slots, and slot s of call c belongs to element 512 s + c. A piece is the two slots that
 * one word of each call serves. Every loop runs over a piece, without a branch, a call or a
 * remainder, so that the compiler vectorises it. The form of a row is chosen once for each piece, so
 * an element's bits may depend on its piece, but neither on threads nor on other groups.
 *
 * Words, deltas and the row have separate loops. One loop for all was slower: its chain of dependent
 * instructions is longer than what a processor keeps in flight.
 */

#if defined(BUILD) && __has_include(<Python.h>)
#define Py_LIMITED_API 0x030b0000
#include <Python.h> /* must be the first include */
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-thread-jumps") /* else gcc turns nested ?: into branches */
#endif
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "cpu_math.h"
#include "cpu_rows.h"
#include "cpu_limits.h"

#define CALLS 512
#define PIECE (2 * CALLS)
#define BLOCK (8 * CALLS)
#define WINDOW 8 /* blocks that are put in order at once */
#define TINY_DELTA 0x1p-40f
#define LARGEST_NORMAL 5.65f /* of the noise: sqrt(46 log(2)) = 5.647 */

/* --- noise ---------------------------------------------------------------------------------- */

/* Philox multiplies the low halves of lanes of 64 bits. The compiler would multiply all 64 bits. */
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

/* Philox4x32-7 of the calls that ``counter`` holds, one per lane. */
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

/* How delta is made: with y = v - 1/4 and 0 <= v <= 1/2, lam sin(pi v) is v times an even and an odd
   polynomial in y, and lam sin(pi (1/2 - v)) is 1/2 - v times their difference. */
typedef struct {
    float even0, even1, even2, even3, odd0, odd1, odd2, floor;
} Noise;

static Noise noise_of(float lam, float floor) {
    lam = at_most(lam, 0x1p125f); /* so that no coefficient is infinite */
    return (Noise){lam * 2.828427077f,    lam * -4.245942629f, lam * 2.009652922f,
                   lam * -4.485590429e-1f, lam * -2.427938593f, lam * 2.366819662f,
                   lam * -8.124152928e-1f, floor};
}

/* Box and Muller: one word makes two normal numbers. The angle is folded into a quarter of the
   circle before it is multiplied by pi, and the signs come from the angle before folding. So no
   rounding changes a sign, which is the sign of delta. */
static void draw_deltas(const uint32_t words[restrict CALLS], Noise noise,
                        float deltas[restrict PIECE]) {
    for (int call = 0; call < CALLS; call++) {
        uint32_t word = words[call], rotated = word >> 19 | word << 13;
        float u = 2 - float_of(0x3f800000 | (rotated & 0x7fffff));
        float angle = float_of(0x40000000 | (word & 0x7fffff)) - 3; /* over pi */
        float radius = __builtin_sqrtf(minus_twice_log(u));
        float from_axis = 0.5f - magnitude(angle);
        float v = magnitude(from_axis), y = v - 0.25f, y2 = y * y;
        float even = noise.even0 + y2 * (noise.even1 + y2 * (noise.even2 + y2 * noise.even3));
        float odd = y * (noise.odd0 + y2 * (noise.odd1 + y2 * noise.odd2));
        float cos = v * (even + odd), sin = (0.5f - v) * (even - odd);
        deltas[call] = with_sign(radius * cos + noise.floor, from_axis);
        deltas[call + CALLS] = with_sign(radius * sin + noise.floor, angle);
    }
}

/* --- rows ----------------------------------------------------------------------------------- */

typedef void Forward(const float *restrict x, const float *restrict delta, float *restrict out,
                     float first, float second);
typedef void Backward(const float *restrict x, const float *restrict delta,
                      const float *restrict grad, float *restrict out, float first, float second);

/* Each row; its form for delta > -1; its form far from zero; the largest |delta x| for which the first
   is right; and, if the row is linear between kinks, its two kinks. ``first`` and ``second`` are its
   parameters. */
#define ANY FLT_MAX
#define LINEAR INFINITY
#define SMOOTH NAN, NAN
#define ROWS(DO)                                                                                  \
    DO(identity, q_identity, q_identity, LINEAR, SMOOTH) DO(relu, q_relu, q_relu, ANY, 0, 0)      \
    DO(leaky_relu, q_leaky_relu, q_leaky_relu, ANY, 0, 0)                                         \
    DO(hardtanh, small_hardtanh, far_hardtanh, ANY, first, second)                                \
    DO(relu6, small_relu6, far_relu6, ANY, 0, 6)                                                  \
    DO(hardswish, small_hardswish, far_hardswish, ANY, SMOOTH)                                    \
    DO(elu, small_elu, far_elu, 3, SMOOTH) DO(unit_elu, small_unit_elu, far_unit_elu, 3, SMOOTH)  \
    DO(selu, small_selu, far_selu, 3, SMOOTH)                                                     \
    DO(celu, small_celu, far_celu, at_most(3 * first, ANY / 2), SMOOTH)                           \
    DO(sigmoid, small_sigmoid, far_sigmoid, 3, SMOOTH)                                            \
    DO(tanh, small_tanh, far_tanh, 1.5f, SMOOTH)                                                  \
    DO(softplus, q_softplus, far_softplus, ANY, SMOOTH)                                           \
    DO(silu, small_silu, far_silu, 3, SMOOTH) DO(gelu, small_gelu, far_gelu, 0.5f, SMOOTH)        \
    DO(gelu_tanh, q_gelu_tanh, far_gelu_tanh, ANY, SMOOTH)                                        \
    DO(relu2, q_relu2, q_relu2, ANY, SMOOTH)                                                      \
    DO(quick_gelu, small_quick_gelu, far_quick_gelu, 3 / 1.702f, SMOOTH)                          \
    DO(mish, q_mish, far_mish, ANY, SMOOTH)                                                       \
    DO(hardsigmoid, small_hardsigmoid, far_hardsigmoid, ANY, -3, 3)                               \
    DO(softsign, q_softsign, far_softsign, ANY, SMOOTH) DO(sin, q_sin, q_sin, ANY, SMOOTH)        \
    DO(delta, q_delta, q_delta, ANY, SMOOTH)

#define LOOPS(name, form, steps)                                                                  \
    static void forward_##name(const float *restrict x, const float *restrict delta,              \
                               float *restrict out, float first, float second) {                  \
        for (int i = 0; i < PIECE; i++)                                                           \
            out[i] = form(x[i], delta[i], first, second, steps).value;                            \
    }                                                                                             \
    static void backward_##name(const float *restrict x, const float *restrict delta,             \
                                const float *restrict grad, float *restrict out, float first,     \
                                float second) {                                                   \
        for (int i = 0; i < PIECE; i++)                                                           \
            out[i] = grad[i] * form(x[i], delta[i], first, second, steps).slope;                  \
    }
#define DEFINE(name, form, far, ...)                                                              \
    LOOPS(name, q_##name, CROSSING) LOOPS(far_##name, far, CROSSING)                              \
    LOOPS(small_##name, form, SMALL) LOOPS(tiny_##name, form, TINY)                               \
    LOOPS(still_##name, form, STILL)                                                              \
    LOOPS(limit_##name, limit_##name, NO_STEP)
ROWS(DEFINE)

#define ENTRY(name, ...)                                                                          \
    {"q_" #name,                                                                                  \
     {forward_limit_##name, forward_still_##name, forward_tiny_##name, forward_small_##name,      \
      forward_##name, forward_far_##name},                                                        \
     {backward_limit_##name, backward_still_##name, backward_tiny_##name, backward_small_##name,  \
      backward_##name, backward_far_##name}},
static const struct {
    const char *name;
    Forward *forward[NUM_STEPS];
    Backward *backward[NUM_STEPS];
} TABLE[] = {ROWS(ENTRY)};

#define NUMBER(name, ...) ROW_##name,
enum { ROWS(NUMBER) NUM_ROWS };

#define LIMITS(name, form, far, ...) {__VA_ARGS__},
typedef struct {
    float small, low, high;
} Limits;

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

#include "cpu_matrices.h"

/* --- the pass ------------------------------------------------------------------------------- */

typedef struct {
    int row, dtype;
    const void *grad, *x; /* grad is NULL in the forward pass */
    void *out;
    int64_t origin;       /* position of their first element */
    const int64_t *seed; /* NULL for the limit, which needs neither seed nor lam nor phi */
    const float *lam, *phi;
    int64_t groups, inner, per_group;
    float first, second;
    Limits limits;
    int64_t blocks_per_group;
} Job;

typedef struct {
    Job job;
    Shape shape; /* of height 1 if memory is in order */
    int64_t num_blocks, share;
    _Atomic int64_t next;
} Queue;

typedef struct {
    uint32_t words[4][CALLS];
    float deltas[PIECE], x[PIECE], grad[PIECE], out[PIECE];
} __attribute__((aligned(64))) Room;

/* Blocks in order, of a tensor whose memory is not. This is too much for the stack of a thread. */
typedef struct {
    float x[WINDOW * BLOCK], grad[WINDOW * BLOCK], out[WINDOW * BLOCK];
} Window;

/* Where a position of a group lies in memory, and how many positions follow without a gap. */
typedef struct {
    int64_t offset, length;
} Run;

static inline Run run_at(const Job *job, int64_t group, int64_t position, int64_t num) {
    if (job->groups == 1) return (Run){position - job->origin, num};
    int64_t row = position / job->inner, column = position % job->inner;
    int64_t length = job->inner - column;
    return (Run){(row * job->groups + group) * job->inner + column, length < num ? length : num};
}

static const float *load(const Job *job, const void *from, int64_t group, int64_t position,
                         int64_t num, float *restrict buffer) {
    Run run = run_at(job, group, position, num);
    if (job->dtype == FLOAT32 && run.length == PIECE) return (const float *)from + run.offset;
    for (int64_t done = 0; done < num; done += run.length) {
        run = run_at(job, group, position + done, num - done);
        widen(job->dtype, from, run.offset, run.length, buffer + done);
    }
    memset(buffer + num, 0, (PIECE - num) * sizeof *buffer); /* choose_steps reads all of it */
    return buffer;
}

/* The largest |x|, by its bits, which compare as integers do; NaN counts as the largest. */
static float largest(const float *restrict x) {
    uint32_t found = 0;
    for (int i = 0; i < PIECE; i++) {
        uint32_t bits = bits_of(magnitude(x[i]));
        found = bits > found ? bits : found;
    }
    return float_of(found);
}

/* True if a step of up to reach |x| can take an x to a kink other than 0, or if an x is NaN. */
static int is_near_kink(const float *restrict x, float low, float high, float reach) {
    float nearest = at_most(low == 0 ? ANY : magnitude(low), high == 0 ? ANY : magnitude(high));
    float out_of_reach = 0.999999f * nearest / (1 + reach);
    for (int i = 0; i < PIECE; i += 128) {
        uint32_t large = 0, found = 0;
        for (int j = i; j < i + 128; j++) large |= !(magnitude(x[j]) < out_of_reach);
        if (!large) continue; /* the usual case for relu6 */
        for (int j = i; j < i + 128; j++) {
            float step = reach * magnitude(x[j]);
            found |= !(magnitude(x[j] - low) >= step);
            found |= !(magnitude(x[j] - high) >= step);
        }
        if (found) return 1;
    }
    return 0;
}

/* The kind of steps in a piece, where no |delta| is above reach. */
static int choose_steps(const Job *job, const float *x, float reach) {
    float small = job->limits.small, low = job->limits.low, high = job->limits.high;
    int is_crossing = reach >= 1;
    if (small == LINEAR) return STILL;
    if (low == 0 && high == 0) return is_crossing ? CROSSING : STILL;
    if (low < high && !is_crossing && !is_near_kink(x, low, high, reach)) return STILL;
    float most = largest(x), step = reach * most;
    if (!(most < FAR_X)) return FAR;
    if (is_crossing) return CROSSING;
    if (small == ANY) return SMALL;
    if (!(step <= small)) return CROSSING;
    /* gelu's form also needs a small |delta| x^2; see are_small_for_gelu for its SMALL steps. */
    if (job->row == ROW_gelu) return step * step <= 1.8f * reach ? TINY : CROSSING;
    return step <= small / 6 ? TINY : SMALL;
}

/* True if gelu's form for SMALL steps is right for these. Checking each step is worth its time: the
   other form takes half as long again, and the bound by reach and the largest |x| rarely holds. */
static int are_small_for_gelu(const float *restrict x, const float *restrict delta) {
    uint32_t step = 0, turn = 0;
    for (int i = 0; i < PIECE; i++) {
        float h = delta[i] * x[i], m = x[i] + 0.5f * h;
        uint32_t of_step = bits_of(magnitude(h)), of_turn = bits_of(magnitude(m * h));
        step = of_step > step ? of_step : step;
        turn = of_turn > turn ? of_turn : turn;
    }
    return float_of(step) <= GELU_STEP && float_of(turn) <= GELU_TURN;
}

static void apply(const Job *job, int64_t group, int64_t position, int64_t num, const float *x,
                  int steps, Room *room) {
    Run run = run_at(job, group, position, num);
    int direct = job->dtype == FLOAT32 && run.length == PIECE;
    float *out = direct ? (float *)job->out + run.offset : room->out;
    if (job->grad == NULL) {
        TABLE[job->row].forward[steps](x, room->deltas, out, job->first, job->second);
    } else {
        const float *grad = load(job, job->grad, group, position, num, room->grad);
        TABLE[job->row].backward[steps](x, room->deltas, grad, out, job->first, job->second);
    }
    if (direct) return;
    for (int64_t done = 0; done < num; done += run.length) {
        run = run_at(job, group, position + done, num - done);
        narrow(job->dtype, out + done, run.length, job->out, run.offset);
    }
}

static void apply_to_block(const Job *job, int64_t index, Room *room) {
    int64_t group = index / job->blocks_per_group, block = index % job->blocks_per_group;
    float lam = job->seed ? job->lam[group] : 0, phi = job->seed ? *job->phi : 0;
    float floor = at_least(phi, TINY_DELTA);
    float reach = (LARGEST_NORMAL * lam + floor) * 1.000001f; /* a margin for rounding */
    Noise noise = noise_of(lam, floor);
    int64_t left = job->per_group - block * BLOCK, position = block * BLOCK;
    int has_words = 0;
    for (int word = 0; word < 4 && left > 0; word++, left -= PIECE, position += PIECE) {
        int64_t num = left < PIECE ? left : PIECE;
        const float *x = load(job, job->x, group, position, num, room->x);
        int steps = job->seed ? choose_steps(job, x, reach) : NO_STEP;
        if (steps > STILL) {
            if (!has_words) draw_words(job->seed[group], block, room->words);
            has_words = 1;
            draw_deltas(room->words[word], noise, room->deltas);
        }
        if (job->row == ROW_gelu && steps == CROSSING && reach < 1)
            steps = are_small_for_gelu(x, room->deltas) ? SMALL : CROSSING;
        apply(job, group, position, num, x, steps, room);
    }
}

static void apply_out_of_order(const Job *job, Shape shape, int64_t first, int64_t last,
                               Room *room, Window *window) {
    int64_t start = first * BLOCK, end = last * BLOCK;
    int64_t num = (end < job->per_group ? end : job->per_group) - start;
    Job dense = *job;
    dense.dtype = FLOAT32, dense.x = window->x, dense.out = window->out, dense.origin = start;
    gather(job->dtype, job->x, shape, start, num, window->x);
    if (job->grad != NULL) {
        gather(job->dtype, job->grad, shape, start, num, window->grad);
        dense.grad = window->grad;
    }
    for (int64_t i = first; i < last; i++) apply_to_block(&dense, i, room);
    scatter(job->dtype, job->out, shape, start, num, window->out);
}

static void work(void *argument) {
    Queue *queue = argument;
    Room room;
    Window *window = NULL;
    if (queue->shape.height > 1 && (window = malloc(sizeof *window)) == NULL) return;
    for (;;) {
        int64_t i = atomic_fetch_add(&queue->next, queue->share), last = i + queue->share;
        if (i >= queue->num_blocks) break;
        if (last > queue->num_blocks) last = queue->num_blocks;
        if (window == NULL)
            for (; i < last; i++) apply_to_block(&queue->job, i, &room);
        for (int64_t next; i < last; i = next) {
            next = i + WINDOW < last ? i + WINDOW : last;
            apply_out_of_order(&queue->job, queue->shape, i, next, &room, window);
        }
    }
    free(window);
}

/* The system zeroes newly mapped memory page by page at the first write, which costs more than the
   arithmetic. Huge pages, where the system grants them, avoid most of it. */
static void expect_writes(void *out, int64_t num_bytes) {
#if defined(MADV_HUGEPAGE)
    const int64_t mapped_afresh = 1 << 25, page = 4096; /* 32 MiB: glibc reuses smaller blocks */
    uintptr_t first = ((uintptr_t)out + page - 1) & -page;
    uintptr_t last = ((uintptr_t)out + num_bytes) & -page;
    if (num_bytes >= mapped_afresh) madvise((void *)first, last - first, MADV_HUGEPAGE);
#endif
}

/* --- what cpu.py calls ---------------------------------------------------------------------- */

/* Runs a function in a team of threads: GOMP_parallel. */
typedef void Team(void (*function)(void *), void *argument, unsigned num_threads, unsigned flags);

/* Returns 0, or 1 if no thread had the memory to finish. */
int qneurons_apply(int row, int dtype, const void *grad, const void *x, void *out,
                   const int64_t *seed, const float *lam, const float *phi, int64_t num,
                   int64_t groups, int64_t inner, int64_t height, int64_t width, float first,
                   float second, Team *team, int num_threads) {
    if (row == ROW_elu && first == 1) row = ROW_unit_elu; /* faster: its slope does not jump */
    const Limits limits[] = {ROWS(LIMITS)};
    int64_t per_group = num / groups, blocks_per_group = (per_group + BLOCK - 1) / BLOCK;
    Queue queue = {
        .job = {.row = row, .dtype = dtype, .grad = grad, .x = x, .out = out,
                .seed = seed, .lam = lam, .phi = phi,
                .groups = groups, .inner = inner, .per_group = per_group,
                .first = first, .second = second, .limits = limits[row],
                .blocks_per_group = blocks_per_group},
        .shape = {height, width}, .num_blocks = groups * blocks_per_group};
    expect_writes(out, num * (dtype == FLOAT32 ? 4 : 2));
    queue.share = 1 + (queue.num_blocks - 1) / (4 * num_threads);
    if (num_threads > 1) team(work, &queue, num_threads, 0);
    else work(&queue);
    return queue.next < queue.num_blocks;
}

#include "cpu_means.h"

const char *qneurons_row(int row) { return row < NUM_ROWS ? TABLE[row].name : NULL; }

/* Version of the arguments: a library built for other arguments is not called. */
int qneurons_version(void) { return 4; }

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

#if defined(Py_LIMITED_API)

/* qneurons_apply as a Python function, with addresses as integers. It is faster than ctypes, which
   is used if the build had no Python headers. */
static PyObject *apply_from_python(PyObject *self, PyObject *const *given, Py_ssize_t num_given) {
    (void)self;
    if (num_given != 17) return PyErr_Format(PyExc_TypeError, "apply takes 17 arguments");
    int64_t integers[17];
    for (int i = 0; i < 17; i++)
        integers[i] = i == 13 || i == 14 ? 0 : PyLong_AsLongLong(given[i]);
    float first = PyFloat_AsDouble(given[13]), second = PyFloat_AsDouble(given[14]);
    if (PyErr_Occurred()) return NULL;
#define AT(i) ((void *)(intptr_t)integers[i])
    PyThreadState *state = PyEval_SaveThread();
    int failed = qneurons_apply(integers[0], integers[1], AT(2), AT(3), AT(4), AT(5), AT(6), AT(7),
                                integers[8], integers[9], integers[10], integers[11],
                                integers[12], first, second, (Team *)AT(15), integers[16]);
    PyEval_RestoreThread(state);
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"apply", (PyCFunction)(void (*)(void))apply_from_python, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "native", .m_methods = functions};

#define JOINED(a, b) a##b
#define INIT(build) JOINED(PyInit__native_, build)
PyMODINIT_FUNC INIT(BUILD)(void) { return PyModule_Create(&module); }

#endif
