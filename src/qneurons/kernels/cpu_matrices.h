/* Memory out of order: a batch of matrices whose columns follow each other in logical order.
 *
 * In channels_last they are pixels × channels. Elements are moved to a buffer in logical order and
 * back, four columns at once where they are whole.
 */

typedef float Four __attribute__((vector_size(16)));

#if defined(__clang__) || __GNUC__ >= 12
#define PICK(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int32_t Places __attribute__((vector_size(16)));
#define PICK(a, b, i, j, k, l) __builtin_shuffle(a, b, (Places){i, j, k, l})
#endif

#define INLINE static inline __attribute__((always_inline))

typedef struct {
    int64_t height, width;
} Shape;

INLINE float read_one(int dtype, const void *from, int64_t i) {
    if (dtype == FLOAT32) return ((const float *)from)[i];
    uint16_t half = ((const uint16_t *)from)[i];
    return dtype == FLOAT16 ? from_half(half) : float_of((uint32_t)half << 16);
}

INLINE void write_one(int dtype, void *to, int64_t i, float x) {
    if (dtype == FLOAT32) ((float *)to)[i] = x;
    else ((uint16_t *)to)[i] = dtype == FLOAT16 ? to_half(x) : to_bfloat(x);
}

INLINE Four read_four(int dtype, const void *from, int64_t i) {
    Four x;
    if (dtype == FLOAT32) memcpy(&x, (const float *)from + i, sizeof x);
    else for (int k = 0; k < 4; k++) x[k] = read_one(dtype, from, i + k);
    return x;
}

INLINE void write_four(int dtype, void *to, int64_t i, Four x) {
    if (dtype == FLOAT32) memcpy((float *)to + i, &x, sizeof x);
    else for (int k = 0; k < 4; k++) write_one(dtype, to, i + k, x[k]);
}

INLINE void transpose(Four x[4]) {
    Four a = PICK(x[0], x[1], 0, 4, 1, 5), b = PICK(x[0], x[1], 2, 6, 3, 7);
    Four c = PICK(x[2], x[3], 0, 4, 1, 5), d = PICK(x[2], x[3], 2, 6, 3, 7);
    x[0] = PICK(a, c, 0, 1, 4, 5), x[1] = PICK(a, c, 2, 3, 6, 7);
    x[2] = PICK(b, d, 0, 1, 4, 5), x[3] = PICK(b, d, 2, 3, 6, 7);
}

/* Moves ``num`` elements of a column, from ``first`` in memory on. */
INLINE void move_column(int dtype, int is_out, void *memory, int64_t first, int64_t width,
                        int64_t num, float *column) {
    for (int64_t row = 0; row < num; row++)
        if (is_out) write_one(dtype, memory, first + row * width, column[row]);
        else column[row] = read_one(dtype, memory, first + row * width);
}

/* Moves four whole columns. */
INLINE void move_four(int dtype, int is_out, void *memory, int64_t first, Shape shape,
                      float *columns) {
    int64_t height = shape.height, width = shape.width, row = 0;
    for (; row + 4 <= height; row += 4) {
        Four x[4];
        for (int k = 0; k < 4; k++)
            x[k] = is_out ? read_four(FLOAT32, columns, k * height + row)
                          : read_four(dtype, memory, first + (row + k) * width);
        transpose(x);
        for (int k = 0; k < 4; k++)
            if (is_out) write_four(dtype, memory, first + (row + k) * width, x[k]);
            else write_four(FLOAT32, columns, k * height + row, x[k]);
    }
    for (int k = 0; k < 4; k++)
        move_column(dtype, is_out, memory, first + row * width + k, width, height - row,
                    columns + k * height + row);
}

INLINE void move(int dtype, int is_out, void *memory, Shape shape, int64_t position, int64_t num,
                 float *buffer) {
    int64_t height = shape.height, width = shape.width, size = height * width;
    int64_t matrix = position / size * size, column = position / height % width;
    int64_t row = position % height;
    while (num > 0) {
        int64_t first = matrix + row * width + column, moved;
        if (row == 0 && column + 4 <= width && 4 * height <= num) {
            moved = 4 * height, column += 4;
            move_four(dtype, is_out, memory, first, shape, buffer);
        } else {
            moved = height - row < num ? height - row : num, column += 1, row = 0;
            move_column(dtype, is_out, memory, first, width, moved, buffer);
        }
        if (column == width) column = 0, matrix += size;
        buffer += moved, num -= moved;
    }
}

#define MOVE(dtype, is_out) case dtype: move(dtype, is_out, memory, shape, position, num, buffer); break

/* Fills the buffer with the ``num`` elements from a position in logical order on. */
static void gather(int dtype, const void *from, Shape shape, int64_t position, int64_t num,
                   float *buffer) {
    void *memory = (void *)from;
    switch (dtype) { MOVE(FLOAT32, 0); MOVE(FLOAT16, 0); MOVE(BFLOAT16, 0); }
}

/* Writes what the buffer holds to these elements. */
static void scatter(int dtype, void *memory, Shape shape, int64_t position, int64_t num,
                    float *buffer) {
    switch (dtype) { MOVE(FLOAT32, 1); MOVE(FLOAT16, 1); MOVE(BFLOAT16, 1); }
}
