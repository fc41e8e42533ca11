/* f'(x)x and its slope of every row: the forms of limits.py, which has the notation. There is no
   step, so that delta is not read. */

#define VANISHING 128.0f /* exp(-128) is 0, while inf times 0 would be NaN */

typedef struct {
    float s, t; /* sigma(z) and sigma(-z) */
} Sides;

INLINE Sides sides_of(float z) {
    float e = exp_of(-z), s = 1 / (1 + e);
    return (Sides){s, e * s};
}

/* If f(y) = y + f(-y), from the limit and its slope at -|x|. */
INLINE Difference mirrored(float x, float below, float slope) {
    return (Difference){at_least(x, ZERO) + below, x < 0 ? slope : 1 - slope};
}

ROW(limit_identity, unused1, unused2) { return (Difference){x, 1}; }

ROW(limit_relu, unused1, unused2) {
    return (Difference){at_least(x, ZERO), unless_nan(x, x < 0 ? 0 : 1)};
}

ROW(limit_relu2, unused1, unused2) {
    float y = at_least(x, ZERO);
    return (Difference){2 * y * y, 4 * y};
}

ROW(limit_leaky_relu, negative_slope, unused) {
    float slope = unless_nan(x, x < 0 ? negative_slope : 1);
    return (Difference){times(x, slope), slope};
}

ROW(limit_hardtanh, low, high) {
    int outside = (x < low) | (x >= high);
    return (Difference){outside ? 0 : x, unless_nan(x, outside ? 0 : 1)};
}

ROW(limit_relu6, unused1, unused2) { return limit_hardtanh(x, delta, 0, 6, steps); }

ROW(limit_hardsigmoid, unused1, unused2) {
    Difference hardtanh = limit_hardtanh(x, delta, -3, 3, steps);
    return (Difference){hardtanh.value * (1 / 6.0f), hardtanh.slope * (1 / 6.0f)};
}

ROW(limit_hardswish, unused1, unused2) {
    float inside = x * (1 / 6.0f) * (2 * x + 3), slope = (4 * x + 3) * (1 / 6.0f);
    return (Difference){x < -3 ? 0 : x >= 3 ? x : inside, x < -3 ? 0 : x >= 3 ? 1 : slope};
}

ROW(limit_elu, alpha, unused) {
    float low = at_least(at_most(x, ZERO), -VANISHING), e = alpha * exp_of(low);
    return (Difference){at_least(x, ZERO) + low * e, x >= 0 ? 1 : e + low * e};
}

ROW(limit_unit_elu, unused1, unused2) { /* no jump at zero */
    float low = at_least(at_most(x, ZERO), -VANISHING), e = exp_of(low);
    return (Difference){at_least(x, ZERO) + low * e, e + low * e};
}

ROW(limit_selu, unused1, unused2) {
    Difference elu = limit_elu(x, delta, 1.67326324f, 0, steps);
    return (Difference){1.05070099f * elu.value, 1.05070099f * elu.slope};
}

ROW(limit_celu, alpha, unused) {
    Difference elu = limit_unit_elu(x * (1 / alpha), delta, 0, 0, steps);
    return (Difference){alpha * elu.value, elu.slope};
}

ROW(limit_sigmoid, unused1, unused2) {
    float z = at_most(magnitude(x), VANISHING);
    Sides y = sides_of(z);
    float bell = y.t * y.s;
    return (Difference){with_sign(z * bell, x), bell * (1 - z * (y.s - y.t))};
}

ROW(limit_tanh, unused1, unused2) {
    Difference sigmoid = limit_sigmoid(2 * x, delta, 0, 0, steps);
    return (Difference){2 * sigmoid.value, 4 * sigmoid.slope};
}

ROW(limit_softplus, beta, unused) {
    float y = beta * x, z = at_most(magnitude(y), VANISHING);
    Sides side = sides_of(z);
    return mirrored(x, -z * side.t * (1 / beta), side.t * (1 - z * side.s));
}

ROW(limit_silu, unused1, unused2) {
    float z = at_most(magnitude(x), VANISHING);
    Sides y = sides_of(z);
    return mirrored(x, -z * y.t * (1 - z * y.s), y.t * (1 - z * y.s * (3 - z * (y.s - y.t))));
}

ROW(limit_quick_gelu, unused1, unused2) {
    Difference silu = limit_silu(1.702f * x, delta, 0, 0, steps);
    return (Difference){silu.value * (1 / 1.702f), silu.slope};
}

ROW(limit_gelu, unused1, unused2) {
    static const float G[] = GELU_TAIL;
    float z = at_most(magnitude(x), VANISHING), e = exp_of(-0.5f * z * z), w = 4 / (z + 4), mills = G[0];
    for (int i = 1; i < 11; i++) mills = mills * w + G[i];
    float tail = e * mills, bell = 0.398942280f * e * z;
    return mirrored(x, -z * (tail - bell), tail - bell * (3 - z * z));
}

ROW(limit_gelu_tanh, unused1, unused2) {
    const float scale = 1.595769122f, cubic = 0.044715f; /* v = scale (y + cubic y^3) */
    float z = at_most(magnitude(x), VANISHING), square = cubic * z * z;
    float dv = scale * (1 + 3 * square);
    Sides y = sides_of(scale * z * (1 + square));
    float bell = z * (y.t * y.s), bend = 5 * dv - 2 * scale - z * dv * dv * (y.s - y.t);
    return mirrored(x, -z * (y.t - bell * dv), y.t - bell * bend);
}

ROW(limit_mish, unused1, unused2) {
    float above = at_least(x, -VANISHING), y = at_most(above, VANISHING), e = exp_of(-magnitude(y));
    float n = 1 + e, unit = y < 0 ? 1 : e, inverse = 1 / (n * n + unit * unit);
    float factor = (y < 0 ? e : 1) * (n + unit) * inverse;
    float bell = y * (4 * e * unit * inverse * inverse);
    float bend = unit * unit * (2 * n - unit) + n * n * (3 * unit - 2 * n);
    return (Difference){above * factor + y * (n * bell),
                        factor + bell * (3 * n + y * (bend * inverse))};
}

ROW(limit_softsign, unused1, unused2) {
    float z = magnitude(x), inverse = 1 / (1 + z), ratio = at_most(z, FLT_MAX) * inverse;
    return (Difference){with_sign(ratio * inverse, x), (inverse - ratio) * inverse * inverse};
}

ROW(limit_sin, unused1, unused2) {
    Circle y = circle(x);
    return (Difference){x * y.cos, y.cos - x * y.sin};
}

ROW(limit_delta, unused1, unused2) { return (Difference){0, 0}; }
