/* Serves the calls of emulated.py: reads one from its input, runs it, writes the result. */

#include <stdio.h>
#include <stdlib.h>

#include "../src/qneurons/kernels/cpu.c"

/* The next part of a call, or NULL if it has none. It stays allocated until the next call. */
static void *receive(int64_t num_bytes, void **buffer) {
    if (num_bytes == 0) return NULL;
    *buffer = realloc(*buffer, num_bytes);
    if (*buffer == NULL || fread(*buffer, num_bytes, 1, stdin) != 1) exit(1);
    return *buffer;
}

int main(void) {
    enum { GRAD, X, SEED, LAM, PHI, OUT, NUM_PARTS };
    struct {
        int64_t is_look_up, sizes[NUM_PARTS], integers[7];
        double first, second;
    } call;
    void *buffers[NUM_PARTS] = {NULL};
    while (fread(&call, sizeof call, 1, stdin) == 1) {
        void *parts[OUT];
        for (int i = 0; i < OUT; i++) parts[i] = receive(call.sizes[i], &buffers[i]);
        void *out = buffers[OUT] = realloc(buffers[OUT], call.sizes[OUT]);
        const int64_t *given = call.integers;
        if (call.is_look_up)
            qneurons_look_up(parts[0], parts[1], parts[2], out, given[0], given[1], given[2],
                             given[3], NULL, 1);
        else
            qneurons_apply(given[0], given[1], parts[GRAD], parts[X], out, parts[SEED], parts[LAM],
                           parts[PHI], given[2], given[3], given[4], given[5], given[6],
                           call.first, call.second, NULL, 1);
        if (fwrite(out, call.sizes[OUT], 1, stdout) != 1 || fflush(stdout)) return 1;
    }
    return 0;
}
