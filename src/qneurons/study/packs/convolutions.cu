// The 3 × 3 convolutions of a pack on tensor cores, in tf32.
//
// A block copies rows of a few images into shared memory, and all nine taps read them there. The zeros
// to the left of a row are also those to the right of the row above. Positions are numbered along such
// rows, so a tap is a constant shift. Positions that are no outputs are computed and dropped.
//
// tests/study/packs/emulated_cuda.h runs this file on a CPU.

constexpr int TAPS = 9, WARP = 32, FEATURES = 32;  // features at a time
constexpr int FEW = 4;  // channels at most, if their taps are multiplied together

#ifndef EMULATED
// Starts a copy of `WIDTH` numbers to shared memory, of zeros where `inside` is false.
template <int WIDTH>
__device__ inline void copy(float* to, const float* from, bool inside = true) {
    unsigned at = __cvta_generic_to_shared(to);
    int bytes = inside ? 4 * WIDTH : 0;
    if constexpr (WIDTH == 4)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(4 * WIDTH),
                     "r"(bytes));
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;"); }

// Waits for this thread's copies, but for those of the last `PENDING` commits.
template <int PENDING>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// d += a b for a 16 × 8 and b 8 × 8, spread over a warp as PTX's m16n8k8 has it: with row = lane / 4
// and column = lane % 4, a thread has a[row, row + 8; column], the same four columns on, b[column,
// column + 4; row] and d[row; 2 column, 2 column + 1], d[row + 8; the same].
__device__ inline void multiply(float (&d)[4], const float (&a)[4], float b0, float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}
#endif

// The smallest stride of at least `size` floats for which a warp's accesses meet no bank twice, if
// `spread` lanes are neighbours and the others are strides apart.
__device__ constexpr int stride_of(int size, int spread) {
    int units = (size + spread - 1) / spread;
    return spread * (units % 2 ? units : units + 1);
}

// How many numbers may be copied at once, if rows have multiples of both sizes.
__device__ constexpr int width_of(int size, int other) {
    return size % 4 == 0 && other % 4 == 0 ? 4 : size % 2 == 0 && other % 2 == 0 ? 2 : 1;
}

// Into how many teams to divide threads, if each has equally many planes and a thread for every piece.
__device__ constexpr int teams_of(int threads, int pieces, int planes) {
    int teams = 1;
    while (2 * teams * pieces <= threads && planes % (2 * teams) == 0) teams *= 2;
    return teams;
}

// Starts to copy `PLANES` planes of `SIZE` numbers. `find` returns the address of a number in the first
// plane and says whether it exists.
template <int PLANES, int SIZE, int STRIDE, int WIDTH, int THREADS, typename Find>
__device__ inline void copy_planes(float* to, long long plane, Find find) {
    constexpr int PIECES = SIZE / WIDTH, TEAMS = teams_of(THREADS, PIECES, PLANES);
    const int team = threadIdx.x / PIECES;
    if (team >= TEAMS) return;
    for (int piece = threadIdx.x % PIECES; piece < PIECES; piece += THREADS) {
        bool inside;
        const float* from = find(piece * WIDTH, inside) + team * plane;
        float* const at = to + team * STRIDE + piece * WIDTH;
#pragma unroll 8
        for (int i = 0; i < PLANES; i += TEAMS, from += TEAMS * plane)
            copy<WIDTH>(at + i * STRIDE, from, inside);
    }
}

// What a block reads and writes: `ROWS` rows of the output of `IMAGES` images.
template <int H_, int W_, int PADDING_, int ROWS_, int IMAGES_>
struct Tile {
    static constexpr int H = H_, W = W_, PADDING = PADDING_, ROWS = ROWS_, IMAGES = IMAGES_;
    static constexpr int OUT_H = H + 2 * PADDING - 2, OUT_W = W + 2 * PADDING - 2;
    static constexpr int COLUMNS = (OUT_W + 3) / 4 * 4;  // that gradients are read in
    static constexpr int PITCH = W + PADDING;
    static constexpr int AREA = ((ROWS + 1) * PITCH + COLUMNS + 2 + 3) / 4 * 4;  // of an image, in fours
    static constexpr int POSITIONS = ROWS * PITCH;
    static constexpr int IN_IMAGE = (OUT_H + ROWS - 1) / ROWS;  // tiles

    int image, row;  // the first

    __device__ explicit Tile(int index)
        : image(index / IN_IMAGE * IMAGES), row(index % IN_IMAGE * ROWS) {}

    // Starts to copy the images of some channels.
    template <int CHANNELS, int STRIDE, int THREADS>
    __device__ void load(const float* x, int stride_c, int stride_b, int batch, float* to) const {
        auto find = [&](int at, bool& inside) {
            int i = image + at / AREA, y = row + at % AREA / PITCH - PADDING, z = at % AREA % PITCH - PADDING;
            inside = i < batch && y >= 0 && y < H && z >= 0;
            return x + (inside ? (long long)i * stride_b + y * W + z : 0);
        };
        copy_planes<CHANNELS, IMAGES * AREA, STRIDE, width_of(W, PADDING), THREADS>(to, stride_c, find);
    }

    // Where a tap reads, seen from the first.
    static __device__ constexpr int shift(int tap) { return tap / 3 * PITCH + tap % 3; }
};

// out = weights ∗ x + bias. A step multiplies a tap of eight channels, or two taps of a few. The
// weights are in the order in which threads read them: run × block of features × step × 2 × thread × 4.
template <int C, int F, int H, int W, int PADDING, int ROWS, int IMAGES, int WARPS, int TILES, int BLOCKS,
          bool BIAS>
__global__ void __launch_bounds__(WARPS* WARP, BLOCKS)
    convolve(const float* x, const float* weights, const float* bias, float* out, int batch, int stride_r,
             int stride_c, int stride_b) {
    using Tile = Tile<H, W, PADDING, ROWS, IMAGES>;
    constexpr bool IS_FEW = C <= FEW;
    constexpr int CHANNELS = IS_FEW ? C : 8, STEPS = IS_FEW ? (TAPS + 1) / 2 : TAPS;  // of a stage
    constexpr int STAGES = C / CHANNELS, AHEAD = STAGES < 2 ? STAGES : 2;  // copied before they are used
    constexpr int KEPT = STAGES < 3 ? STAGES : 3;                          // in shared memory
    constexpr int STRIDE = stride_of(IMAGES * Tile::AREA, 8);              // of a channel
    constexpr int MATRIX = CHANNELS * STRIDE, OF_STEP = 8 * FEATURES;  // where a stage has weights
    constexpr int STAGE = MATRIX + STEPS * OF_STEP;
    constexpr int PER_IMAGE = (Tile::POSITIONS + 15) / 16, USED = IMAGES * PER_IMAGE;
    static_assert(WARPS * TILES >= USED && C % CHANNELS == 0 && F % FEATURES == 0, "");
    // Positions beyond the last may read weights, but nothing beyond shared memory.
    static_assert(MATRIX + PER_IMAGE * 16 + Tile::shift(TAPS - 1) <= Tile::AREA + STAGE, "");
    extern __shared__ float shared[];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int first_f = blockIdx.x % (F / FEATURES) * FEATURES;
    const long long run = blockIdx.y;
    const Tile tile(blockIdx.x / (F / FEATURES));
    x += run * stride_r;
    weights += (run * F + first_f) / FEATURES * STAGES * STEPS * OF_STEP;

    auto load = [&](int stage) {
        float* const to = shared + stage % KEPT * STAGE;
        for (int i = threadIdx.x * 4; i < STEPS * OF_STEP; i += WARPS * WARP * 4)
            copy<4>(to + MATRIX + i, weights + stage * STEPS * OF_STEP + i);
        tile.template load<CHANNELS, STRIDE, WARPS * WARP>(
            x + (long long)stage * CHANNELS * stride_c, stride_c, stride_b, batch, to);
    };

    int start[TILES];  // of this thread's elements of x
    float total[TILES][4][4];
    for (int t = 0; t < TILES; ++t) {
        int index = warp * TILES + t, c = lane % 4 < CHANNELS ? lane % 4 : 0;  // others have no weight
        index = index < USED ? index : 0;
        start[t] = c * STRIDE + index / PER_IMAGE * Tile::AREA + index % PER_IMAGE * 16 + lane / 4;
        for (int n = 0; n < 4; ++n)
            for (int i = 0; i < 4; ++i)
                total[t][n][i] = BIAS ? bias[run * F + first_f + 8 * n + lane % 4 * 2 + i % 2] : 0.0f;
    }
    for (int stage = 0; stage < AHEAD; ++stage) {
        load(stage);
        commit_copies();
    }
#pragma unroll 1
    for (int stage = 0; stage < STAGES; ++stage) {
        wait_for_copies<AHEAD - 1>();
        __syncthreads();  // what was copied is there, and the stage before is not used any more
        if (stage + AHEAD < STAGES) load(stage + AHEAD);
        commit_copies();
        const float* const first = shared + stage % KEPT * STAGE;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const int tap = IS_FEW ? 2 * step : step;
            const int half = IS_FEW ? (tap + 1 < TAPS ? Tile::shift(tap + 1) - Tile::shift(tap) : 0) : 4 * STRIDE;
            const float4* matrix = reinterpret_cast<const float4*>(first + MATRIX + step * OF_STEP) + lane;
            const float4 b = matrix[0], b_next = matrix[WARP];
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                const float* at = first + start[t] + Tile::shift(tap);
                const float a[4] = {at[0], at[8], at[half], at[half + 8]};
                multiply(total[t][0], a, b.x, b.y);
                multiply(total[t][1], a, b.z, b.w);
                multiply(total[t][2], a, b_next.x, b_next.y);
                multiply(total[t][3], a, b_next.z, b_next.w);
            }
        }
    }
    // Through shared memory, because the rows of a tile are contiguous in the result and a thread's
    // elements are not.
    constexpr int STRIDE_OUT = stride_of(IMAGES * Tile::POSITIONS, 4);
    __syncthreads();
#pragma unroll
    for (int t = 0; t < TILES; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int index = warp * TILES + t, position = index % PER_IMAGE * 16 + half * 8 + lane / 4;
            if (index >= USED || position >= Tile::POSITIONS) continue;
            float* to = shared + lane % 4 * 2 * STRIDE_OUT + index / PER_IMAGE * Tile::POSITIONS + position;
#pragma unroll
            for (int n = 0; n < 4; ++n)
                for (int i = 0; i < 2; ++i) to[(8 * n + i) * STRIDE_OUT] = total[t][n][2 * half + i];
        }
    __syncthreads();
    constexpr int OUTPUTS = ROWS * Tile::OUT_W;
    const long long plane = (long long)batch * Tile::OUT_H * Tile::OUT_W;
    out += (run * F + first_f) * plane + (tile.image * Tile::OUT_H + tile.row) * Tile::OUT_W;
#pragma unroll
    for (int begin = 0; begin < IMAGES * OUTPUTS; begin += WARPS * WARP) {
        int at = begin + threadIdx.x, i = at / OUTPUTS, y = at % OUTPUTS / Tile::OUT_W;
        if (i >= IMAGES || tile.image + i >= batch || tile.row + y >= Tile::OUT_H) continue;
        const float* from = shared + i * Tile::POSITIONS + y * Tile::PITCH + at % Tile::OUT_W;
        float* to = out + i * Tile::OUT_H * Tile::OUT_W + at % OUTPUTS;
#pragma unroll 8
        for (int f = 0; f < FEATURES; ++f, to += plane) *to = from[f * STRIDE_OUT];
    }
}

// The gradients of the weights, run × feature × channel × tap, and after them of the biases, each summed
// over every PARTS-th tile in a fixed order: reproducible. The sum over the parts is left to the caller.
//
// A step multiplies eight positions, four neighbours in two rows. Steps go down the image, so the lower
// two of the four rows that the taps read are the upper two of the next step.
template <int C, int F, int H, int W, int PADDING, int ROWS, int IMAGES, int WARPS, int BLOCKS>
__global__ void __launch_bounds__(WARPS* WARP, BLOCKS)
    convolve_gradients(const float* x, const float* grad, float* out, float* out_bias, int batch, int stride_r,
                       int stride_c, int stride_b) {
    using Tile = Tile<H, W, PADDING, ROWS, IMAGES>;
    constexpr bool IS_FEW = C <= FEW;
    constexpr int CHANNELS = IS_FEW ? C : 32;  // at a time
    constexpr int PITCH = Tile::PITCH, COLUMNS = Tile::COLUMNS, STEPS = IMAGES * COLUMNS / 4;
    constexpr int AREA = ROWS * COLUMNS;  // of an image's gradients
    constexpr int STRIDE = stride_of(IMAGES * Tile::AREA, 4), STRIDE_G = stride_of(IMAGES * AREA, 4);
    constexpr int STAGE = CHANNELS * STRIDE + FEATURES * STRIDE_G;  // one is used, the next is copied
    // A warp has eight channels and all taps, or all of both as rows of eight.
    constexpr int GROUPS = IS_FEW ? 1 : CHANNELS / 8, SHARES = WARPS / GROUPS;
    constexpr int OF_FEATURE = CHANNELS * TAPS, COUNT = IS_FEW ? (OF_FEATURE + 7) / 8 : TAPS;
    static_assert(ROWS % 2 == 0 && WARPS % GROUPS == 0 && C % CHANNELS == 0 && F % FEATURES == 0, "");
    extern __shared__ float shared[];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int first_c = blockIdx.x % (C / CHANNELS) * CHANNELS, first_f = blockIdx.x / (C / CHANNELS) * FEATURES;
    const int parts = gridDim.y, part = blockIdx.y;
    const int group = warp % GROUPS, share = warp / GROUPS;
    const long long run = blockIdx.z, plane = (long long)batch * Tile::OUT_H * Tile::OUT_W;
    x += run * stride_r + (long long)first_c * stride_c;
    grad += (run * F + first_f) * plane;

    auto load = [&](int index, float* to) {
        const Tile tile(index);
        tile.template load<CHANNELS, STRIDE, WARPS * WARP>(x, stride_c, stride_b, batch, to);
        auto find = [&](int at, bool& inside) {
            int i = tile.image + at / AREA, y = tile.row + at % AREA / COLUMNS, z = at % COLUMNS;
            inside = i < batch && y < Tile::OUT_H && z < Tile::OUT_W;
            return grad + (inside ? (i * Tile::OUT_H + y) * Tile::OUT_W + z : 0);
        };
        copy_planes<FEATURES, IMAGES * AREA, STRIDE_G, width_of(Tile::OUT_W, 0), WARPS * WARP>(
            to + CHANNELS * STRIDE, plane, find);
        commit_copies();
    };

    const int tiles = (batch + IMAGES - 1) / IMAGES * Tile::IN_IMAGE;
    float total[2][COUNT][4] = {}, of_biases[2][2] = {};
    int start[IS_FEW ? COUNT : 1];  // of this thread's elements of x
    for (int n = 0; n < (IS_FEW ? COUNT : 1); ++n) {
        int c = group * 8 + lane / 4, k = (n * 8 + lane / 4) % OF_FEATURE;
        start[n] = IS_FEW ? k / TAPS * STRIDE + Tile::shift(k % TAPS) : c * STRIDE;
    }
    load(part, shared);
    for (int index = part, stage = 0; index < tiles; index += parts, stage = 1 - stage) {
        wait_for_copies<0>();
        __syncthreads();  // what was copied is there, and the other stage is not used any more
        if (index + parts < tiles) load(index + parts, shared + (1 - stage) * STAGE);
        const float* const first = shared + stage * STAGE + lane % 4;
        for (int step = share; step < STEPS; step += SHARES) {
            const int image = step / (COLUMNS / 4), column = step % (COLUMNS / 4) * 4;
            const float* at = first + image * Tile::AREA + column;
            const float* g = first + CHANNELS * STRIDE + lane / 4 * STRIDE_G + image * AREA + column;
            float b[4][3];
            if constexpr (!IS_FEW)
                for (int i = 0; i < 6; ++i) b[i / 3][i % 3] = at[start[0] + Tile::shift(i)];
#pragma unroll 2
            for (int row = 0; row < ROWS; row += 2, at += 2 * PITCH, g += 2 * COLUMNS) {
                float a[2][4];
                for (int m = 0; m < 2; ++m)
                    for (int i = 0; i < 4; ++i) a[m][i] = g[(m * 16 + i % 2 * 8) * STRIDE_G + i / 2 * COLUMNS];
                for (int m = 0; m < 2; ++m)
                    for (int i = 0; i < 2; ++i) of_biases[m][i] += a[m][i] + a[m][i + 2];
                if constexpr (!IS_FEW)
                    for (int i = 6; i < 12; ++i) b[i / 3][i % 3] = at[start[0] + Tile::shift(i)];
#pragma unroll
                for (int n = 0; n < COUNT; ++n) {
                    float upper, lower;
                    if constexpr (IS_FEW)
                        upper = at[start[n]], lower = at[start[n] + PITCH];
                    else
                        upper = b[n / 3][n % 3], lower = b[n / 3 + 1][n % 3];
                    for (int m = 0; m < 2; ++m) multiply(total[m][n], a[m], upper, lower);
                }
                if constexpr (!IS_FEW)
                    for (int i = 0; i < 6; ++i) b[i / 3][i % 3] = b[i / 3 + 2][i % 3];
            }
        }
    }
    constexpr int STRIDE_S = OF_FEATURE + 4;  // of features, or all would be in the same banks
    float* const sums = shared;               // feature × channel × tap, and then the biases
    for (int turn = 0; turn < SHARES; ++turn) {
        __syncthreads();
        if (share != turn) continue;
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int f = m * 16 + i / 2 * 8 + lane / 4, column = lane % 4 * 2 + i % 2;
#pragma unroll
                for (int n = 0; n < COUNT; ++n) {
                    int k = IS_FEW ? n * 8 + column : (group * 8 + column) * TAPS + n;
                    float* sum = sums + f * STRIDE_S + k;
                    if (k < OF_FEATURE) *sum = turn ? *sum + total[m][n][i] : total[m][n][i];
                }
                if (i >= 2) continue;
                float of_bias = of_biases[m][i];
                for (int far = 1; far < 4; far *= 2) of_bias += __shfl_xor_sync(0xffffffff, of_bias, far);
                float* sum = sums + FEATURES * STRIDE_S + m * 16 + i * 8 + lane / 4;
                if (group == 0 && lane % 4 == 0) *sum = turn ? *sum + of_bias : of_bias;
            }
    }
    __syncthreads();
    const long long begin = (long long)part * gridDim.z * F * (C * TAPS + 1), feature = run * F + first_f;
    for (int i = threadIdx.x; i < FEATURES * OF_FEATURE; i += WARPS * WARP)
        out[begin + ((feature + i / OF_FEATURE) * C + first_c) * TAPS + i % OF_FEATURE] =
            sums[i / OF_FEATURE * STRIDE_S + i % OF_FEATURE];
    if (first_c == 0 && threadIdx.x < FEATURES)
        out_bias[begin + feature + threadIdx.x] = sums[FEATURES * STRIDE_S + threadIdx.x];
}
