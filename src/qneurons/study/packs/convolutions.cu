// The 3 × 3 convolutions of a pack on tensor cores, in tf32.
//
// A block copies rows of a few images into shared memory, with their padding, and all nine taps read
// them there. Positions are numbered along the padded rows, so a tap is a constant shift. The last
// two positions of each row are no outputs: they are computed and dropped.
//
// tests/study/packs/emulated_cuda.h runs this file on a CPU.

constexpr int TAPS = 9, WARP = 32;
constexpr int CHANNELS = 32, FEATURES = 32;  // at a time

#ifndef EMULATED
// Starts a copy to shared memory, of 0 where `inside` is false.
__device__ inline void copy(float* to, const float* from, bool inside) {
    unsigned at = __cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(inside ? 4 : 0));
}

__device__ inline void copy(float4* to, const float4* from) {
    unsigned at = __cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
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

// What a block reads and writes: `ROWS` rows of the output of `IMAGES` images.
template <int H_, int W_, int PADDING_, int ROWS_, int IMAGES_>
struct Tile {
    static constexpr int H = H_, W = W_, PADDING = PADDING_, ROWS = ROWS_, IMAGES = IMAGES_;
    static constexpr int OUT_H = H + 2 * PADDING - 2, OUT_W = W + 2 * PADDING - 2;
    static constexpr int PITCH = W + 2 * PADDING;
    static constexpr int AREA = (ROWS + 2) * PITCH;  // of an image in shared memory
    static constexpr int POSITIONS = ROWS * PITCH;
    static constexpr int IN_IMAGE = (OUT_H + ROWS - 1) / ROWS;  // tiles

    int image, row;  // the first

    __device__ explicit Tile(int index)
        : image(index / IN_IMAGE * IMAGES), row(index % IN_IMAGE * ROWS) {}

    // Starts to copy the images of a channel.
    __device__ void load(const float* x, int stride_b, int batch, int lane, float* to) const {
#pragma unroll
        for (int i = 0; i < IMAGES; ++i) {
            const float* from = x + (long long)(image + i) * stride_b;
#pragma unroll
            for (int begin = 0; begin < AREA; begin += WARP) {
                int at = begin + lane, y = row + at / PITCH - PADDING, z = at % PITCH - PADDING;
                bool inside = image + i < batch && y >= 0 && y < H && z >= 0 && z < W;
                if (at < AREA) copy(to + i * AREA + at, inside ? from + y * W + z : x, inside);
            }
        }
    }
};

// out = weights ∗ x + bias. The weights are in the order in which threads read them:
// run × block of features × block of channels × tap × 8 channels × 2 × thread × 4.
template <int C, int F, int H, int W, int PADDING, int ROWS, int IMAGES, int WARPS, int TILES, int BLOCKS,
          bool BIAS>
__global__ void __launch_bounds__(WARPS* WARP, BLOCKS)
    convolve(const float* x, const float* weights, const float* bias, float* out, int batch, int stride_r,
             int stride_c, int stride_b) {
    using Tile = Tile<H, W, PADDING, ROWS, IMAGES>;
    constexpr int STRIDE = stride_of(IMAGES * Tile::AREA, 8);  // of a channel
    constexpr int PER_IMAGE = (Tile::POSITIONS + 15) / 16, USED = IMAGES * PER_IMAGE;
    constexpr int OF_BLOCK = TAPS * CHANNELS * FEATURES;
    static_assert(WARPS * TILES >= USED && C % CHANNELS == 0 && F % FEATURES == 0, "");
    extern __shared__ float shared[];
    float* const matrix = shared + CHANNELS * STRIDE;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int first_f = blockIdx.x % (F / FEATURES) * FEATURES;
    const long long run = blockIdx.y;
    const Tile tile(blockIdx.x / (F / FEATURES));
    x += run * stride_r;
    weights += (run * F + first_f) * C * TAPS;

    int start[TILES];  // of this thread's elements of x
    float total[TILES][4][4];
    for (int t = 0; t < TILES; ++t) {
        int index = warp * TILES + t;
        index = index < USED ? index : 0;
        start[t] = lane % 4 * STRIDE + index / PER_IMAGE * Tile::AREA + index % PER_IMAGE * 16 + lane / 4;
        for (int n = 0; n < 4; ++n)
            for (int i = 0; i < 4; ++i)
                total[t][n][i] = BIAS ? bias[run * F + first_f + 8 * n + lane % 4 * 2 + i % 2] : 0.0f;
    }
    for (int first_c = 0; first_c < C; first_c += CHANNELS) {
        if (first_c) __syncthreads();
        for (int c = warp; c < CHANNELS; c += WARPS)
            tile.load(x + (long long)(first_c + c) * stride_c, stride_b, batch, lane, shared + c * STRIDE);
        for (int i = threadIdx.x; i < OF_BLOCK / 4; i += WARPS * WARP)
            copy(reinterpret_cast<float4*>(matrix) + i,
                 reinterpret_cast<const float4*>(weights + first_c * FEATURES * TAPS) + i);
        commit_copies();
        wait_for_copies<0>();
        __syncthreads();
#pragma unroll TAPS / 3
        for (int tap = 0; tap < TAPS; ++tap)
#pragma unroll
            for (int c = 0; c < CHANNELS / 8; ++c) {
                const float4* step = reinterpret_cast<float4*>(matrix) + (tap * (CHANNELS / 8) + c) * 2 * WARP;
                const float4 b = step[lane], b_next = step[WARP + lane];
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
                    const float* at = shared + start[t] + c * 8 * STRIDE + tap / 3 * Tile::PITCH + tap % 3;
                    const float a[4] = {at[0], at[8], at[4 * STRIDE], at[4 * STRIDE + 8]};
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
    const int left = Tile::OUT_H - tile.row, filled = (left < ROWS ? left : ROWS) * Tile::OUT_W;
    for (int f = warp; f < FEATURES; f += WARPS)
        for (int i = 0; i < IMAGES && tile.image + i < batch; ++i) {
            const float* from = shared + f * STRIDE_OUT + i * Tile::POSITIONS;
            float* to = out + ((run * F + first_f + f) * batch + tile.image + i) * Tile::OUT_H * Tile::OUT_W +
                        tile.row * Tile::OUT_W;
#pragma unroll
            for (int begin = 0; begin < ROWS * Tile::OUT_W; begin += WARP) {
                int at = begin + lane;
                if (at < filled) to[at] = from[at / Tile::OUT_W * Tile::PITCH + at % Tile::OUT_W];
            }
        }
}

// The gradients of the weights, run × feature × channel × tap, and of the biases, each summed over
// every PARTS-th tile in a fixed order: reproducible. The sum over the parts is left to the caller.
template <int C, int F, int H, int W, int PADDING, int ROWS, int IMAGES, int WARPS, int BLOCKS>
__global__ void __launch_bounds__(WARPS* WARP, BLOCKS)
    convolve_gradients(const float* x, const float* grad, float* out, float* out_bias, int batch, int stride_r,
                       int stride_c, int stride_b) {
    using Tile = Tile<H, W, PADDING, ROWS, IMAGES>;
    constexpr int AREA = (Tile::POSITIONS + 7) / 8 * 8;  // of an image's gradients
    constexpr int STEPS = IMAGES * AREA / 8;
    constexpr int STRIDE = stride_of(IMAGES * Tile::AREA + 10, 4);  // the last step may read 10 beyond
    constexpr int STRIDE_G = stride_of(IMAGES * AREA, 4);
    constexpr int STAGE = CHANNELS * STRIDE + FEATURES * STRIDE_G;  // one is used, the next is copied
    constexpr int SHARES = WARPS / (CHANNELS / 8);
    static_assert(WARPS % (CHANNELS / 8) == 0 && C % CHANNELS == 0 && F % FEATURES == 0, "");
    extern __shared__ float shared[];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int first_c = blockIdx.x % (C / CHANNELS) * CHANNELS, first_f = blockIdx.x / (C / CHANNELS) * FEATURES;
    const int parts = gridDim.y, part = blockIdx.y;
    const int of_c = warp % (CHANNELS / 8), share = warp / (CHANNELS / 8);
    const long long run = blockIdx.z;
    x += run * stride_r + (long long)first_c * stride_c;
    grad += (run * F + first_f) * batch * Tile::OUT_H * Tile::OUT_W;

    auto load = [&](int index, float* to) {
        const Tile tile(index);
        for (int c = warp; c < CHANNELS; c += WARPS)
            tile.load(x + (long long)c * stride_c, stride_b, batch, lane, to + c * STRIDE);
        for (int f = warp; f < FEATURES; f += WARPS)
#pragma unroll
            for (int i = 0; i < IMAGES; ++i) {
                const float* from = grad + ((long long)f * batch + tile.image + i) * Tile::OUT_H * Tile::OUT_W;
#pragma unroll
                for (int begin = 0; begin < AREA; begin += WARP) {
                    int at = begin + lane, row = at / Tile::PITCH, z = at % Tile::PITCH, y = tile.row + row;
                    bool inside = tile.image + i < batch && row < ROWS && y < Tile::OUT_H && z < Tile::OUT_W;
                    if (at < AREA)
                        copy(to + CHANNELS * STRIDE + f * STRIDE_G + i * AREA + at,
                             inside ? from + y * Tile::OUT_W + z : grad, inside);
                }
            }
    };

    const int tiles = (batch + IMAGES - 1) / IMAGES * Tile::IN_IMAGE;
    float total[2][TAPS][4] = {}, of_biases[2][2] = {};
    for (int i = threadIdx.x; i < 2 * CHANNELS * 16; i += WARPS * WARP) {  // what no copy fills
        int at = IMAGES * Tile::AREA + i % 16;
        if (at < STRIDE) shared[i / 16 / CHANNELS * STAGE + i / 16 % CHANNELS * STRIDE + at] = 0.0f;
    }
    load(part, shared);
    commit_copies();
    for (int index = part, stage = 0; index < tiles; index += parts, stage = 1 - stage) {
        if (index + parts < tiles) load(index + parts, shared + (1 - stage) * STAGE);
        commit_copies();
        wait_for_copies<1>();
        __syncthreads();
        const float* const first_x = shared + stage * STAGE + (of_c * 8 + lane / 4) * STRIDE + lane % 4;
        const float* const first_g =
            shared + stage * STAGE + CHANNELS * STRIDE + lane / 4 * STRIDE_G + lane % 4;
#pragma unroll 2
        for (int step = share; step < STEPS; step += SHARES) {
            const float* g = first_g + step * 8;
            const float* at = first_x + step / (AREA / 8) * Tile::AREA + step % (AREA / 8) * 8;
            float a[2][4];
            for (int m = 0; m < 2; ++m)
                for (int i = 0; i < 4; ++i) a[m][i] = g[(m * 16 + i % 2 * 8) * STRIDE_G + i / 2 * 4];
#pragma unroll
            for (int tap = 0; tap < TAPS; ++tap) {
                const float* b = at + tap / 3 * Tile::PITCH + tap % 3;
                multiply(total[0][tap], a[0], b[0], b[4]);
                multiply(total[1][tap], a[1], b[0], b[4]);
            }
            for (int m = 0; m < 2; ++m)
                for (int i = 0; i < 2; ++i) of_biases[m][i] += a[m][i] + a[m][i + 2];
        }
        __syncthreads();
    }
    wait_for_copies<0>();
    float* const sums = shared;  // feature × channel × tap, and then the biases
    for (int turn = 0; turn < SHARES; ++turn) {
        __syncthreads();
        if (share != turn) continue;
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int f = m * 16 + i / 2 * 8 + lane / 4, c = of_c * 8 + lane % 4 * 2 + i % 2;
#pragma unroll
                for (int tap = 0; tap < TAPS; ++tap) {
                    float* sum = sums + (f * CHANNELS + c) * TAPS + tap;
                    *sum = turn ? *sum + total[m][tap][i] : total[m][tap][i];
                }
                if (i >= 2) continue;
                float of_bias = of_biases[m][i];
                for (int far = 1; far < 4; far *= 2) of_bias += __shfl_xor_sync(0xffffffff, of_bias, far);
                float* sum = sums + FEATURES * CHANNELS * TAPS + m * 16 + i * 8 + lane / 4;
                if (of_c == 0 && lane % 4 == 0) *sum = turn ? *sum + of_bias : of_bias;
            }
    }
    __syncthreads();
    const long long plane = ((long long)part * gridDim.z + run) * F + first_f;
    constexpr int OF_FEATURE = CHANNELS * TAPS;
    for (int i = threadIdx.x; i < FEATURES * OF_FEATURE; i += WARPS * WARP)
        out[((plane + i / OF_FEATURE) * C + first_c) * TAPS + i % OF_FEATURE] = sums[i];
    if (first_c == 0 && threadIdx.x < FEATURES)
        out_bias[plane + threadIdx.x] = sums[FEATURES * OF_FEATURE + threadIdx.x];
}
