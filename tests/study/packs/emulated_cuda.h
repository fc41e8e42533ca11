// Runs a CUDA kernel on a CPU: the threads of a block are coroutines that take turns at barriers.
// Where a copy goes there is NaN from its start until its thread waits for it.

#include <ucontext.h>

#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <vector>

#define EMULATED
#define __device__
#define __global__
#define __shared__
#define __launch_bounds__(...)

struct Index { int x, y, z; };
struct float4 { float x, y, z, w; };

static Index threadIdx, blockIdx, gridDim;
constexpr int SHARED_FLOATS = 1 << 16;
alignas(16) float shared[SHARED_FLOATS];

struct Barrier { int arrived = 0, generation = 0; };
struct Copy { float* to; float value; int group; };
struct Copies { std::deque<Copy> pending; int committed = 0; };

static struct Block {
    static constexpr int STACK = 1 << 16;
    std::vector<ucontext_t> threads;
    std::vector<bool> is_running;
    std::vector<Barrier> of_warps;
    std::vector<Copies> copies;
    Barrier of_block;
    ucontext_t scheduler;
    std::function<void()> body;
    float exchanged[64][32][10];
    int current;
} block;

static void wait_at(Barrier& barrier, int size) {
    int generation = barrier.generation, thread = block.current;
    if (++barrier.arrived == size) {
        barrier.arrived = 0;
        ++barrier.generation;
    }
    while (barrier.generation == generation) swapcontext(&block.threads[thread], &block.scheduler);
}

static void __syncthreads() { wait_at(block.of_block, (int)block.threads.size()); }
static void sync_warp() { wait_at(block.of_warps[block.current / 32], 32); }

template <int WIDTH>
static void copy(float* to, const float* from, bool inside = true) {
    assert((uintptr_t)to % (4 * WIDTH) == 0 && (uintptr_t)from % (4 * WIDTH) == 0);
    Copies& copies = block.copies[block.current];
    for (int i = 0; i < WIDTH; ++i) {
        copies.pending.push_back({to + i, inside ? from[i] : 0, copies.committed});
        to[i] = NAN;
    }
}
static void commit_copies() { ++block.copies[block.current].committed; }
template <int PENDING>
static void wait_for_copies() {
    Copies& copies = block.copies[block.current];
    for (auto& of = copies.pending; !of.empty() && of[0].group < copies.committed - PENDING; of.pop_front())
        *of[0].to = of[0].value;
}

static void multiply(float (&d)[4], const float (&a)[4], float b0, float b1) {
    int lane = threadIdx.x % 32, row = lane / 4, column = lane % 4;
    auto& of = block.exchanged[threadIdx.x / 32];
    for (int i = 0; i < 4; ++i) of[lane][i] = a[i];
    of[lane][4] = b0, of[lane][5] = b1;
    sync_warp();
    for (int i = 0; i < 4; ++i) {
        double sum = d[i];
        for (int k = 0; k < 8; ++k) {
            float left = of[row * 4 + k % 4][k / 4 * 2 + i / 2];
            float right = of[(2 * column + i % 2) * 4 + k % 4][4 + k / 4];
            sum += (double)left * right;
        }
        d[i] = (float)sum;
    }
    sync_warp();
}

static float __shfl_xor_sync(unsigned, float value, int mask) {
    int lane = threadIdx.x % 32;
    auto& of = block.exchanged[threadIdx.x / 32];
    of[lane][0] = value;
    sync_warp();
    float other = of[lane ^ mask][0];
    sync_warp();
    return other;
}

static void run_thread() {
    block.body();
    block.is_running[block.current] = false;
}

// Returns whether the kernel wrote into no other shared memory than it asked for.
static bool launch(Index grid, int num_threads, int shared_bytes, std::function<void()> body) {
    const char* const end = (const char*)(shared + SHARED_FLOATS);
    bool kept_within = true;
    std::vector<char> stacks((size_t)num_threads * Block::STACK);
    gridDim = grid;
    block.body = body;
    for (int z = 0; z < grid.z; ++z)
        for (int y = 0; y < grid.y; ++y)
            for (int x = 0; x < grid.x; ++x) {
                blockIdx = {x, y, z};
                memset(shared, 0xFF, sizeof shared);  // NaN, as memory that nobody wrote
                block.threads.assign(num_threads, {});
                block.is_running.assign(num_threads, true);
                block.of_warps.assign(num_threads / 32, {});
                block.copies.assign(num_threads, {});
                block.of_block = {};
                for (int i = 0; i < num_threads; ++i) {
                    getcontext(&block.threads[i]);
                    block.threads[i].uc_stack = {&stacks[(size_t)i * Block::STACK], 0, Block::STACK};
                    block.threads[i].uc_link = &block.scheduler;
                    makecontext(&block.threads[i], run_thread, 0);
                }
                for (bool any = true; any;) {
                    any = false;
                    for (int i = 0; i < num_threads; ++i) {
                        if (!block.is_running[i]) continue;
                        any = true;
                        block.current = i;
                        threadIdx = {i, 0, 0};
                        swapcontext(&block.scheduler, &block.threads[i]);
                    }
                }
                for (const char* at = (const char*)shared + shared_bytes; at < end; ++at)
                    kept_within &= *at == (char)0xFF;
            }
    return kept_within;
}
