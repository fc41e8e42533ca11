/* g(x, delta) and dg/dx of every row: the forms of closed_forms.py, with one division each. */

typedef struct {
    float value, slope;
} Difference;

/* A row takes x, delta, its two parameters and, as a constant, the kind of its steps. CROSSING:
   delta < -1 may occur, so that zero may lie between x and b = (1 + delta) x. Otherwise half of most
   forms is not needed. TINY and SMALL have shorter forms, in the section on small steps. STILL: the
   row is linear between kinks and no step reaches one, so that delta does not matter. NO_STEP: delta
   is 0, and cpu_limits.h has the forms. FAR: some x is so large that the other forms may overflow, or
   it is infinite or NaN; see the last section. */
#define ROW(name, first, second)                                                                  \
    INLINE Difference name(float x, float delta, float first, float second, int steps)

typedef struct {
    float near, far; /* the smaller and the larger of |x| and |b| */
    float gap;       /* far - near */
    float c;         /* near / |x| */
    float size;      /* |delta| */
    float q;         /* 1 + delta */
    int across;      /* zero lies between x and b: delta < -1 */
    int outward;     /* |b| > |x| */
} Span;

INLINE Span span_of(float x, float delta, int steps) {
    int across = steps == CROSSING && delta < -1;
    float z = magnitude(x), stretch = across ? -2 - delta : delta; /* |1 + delta| - 1 */
    float c = 1 + at_most(stretch, ZERO);
    return (Span){z * c, z * (1 + at_least(stretch, ZERO)), z * magnitude(stretch), c,
                  magnitude(delta), 1 + delta, across, stretch > 0};
}

/* A quantity at x and at b, from what it is at near and at far. */
typedef struct {
    float x, b;
} Ends;

INLINE Ends ends_of(Span s, float near, float far) {
    return (Ends){s.outward ? near : far, s.outward ? far : near};
}

/* --- piecewise linear ----------------------------------------------------------------------- */

/* For a slope that does not depend on x but by comparisons, in which NaN would be lost. */
INLINE float unless_nan(float x, float slope) { return x == x ? slope : x; }

ROW(q_identity, unused1, unused2) {
    return (Difference){x, 1};
}

ROW(q_relu, unused1, unused2) {
    int across = steps == CROSSING && delta < -1, negative = x < 0;
    float crossed = (negative ? 1 + delta : -1) * (1 / delta);
    return (Difference){across ? x * crossed : at_least(x, ZERO),
                        unless_nan(x, across ? crossed : negative ? 0 : 1)};
}

ROW(q_relu2, unused1, unused2) {
    int across = steps == CROSSING && delta < -1;
    float q = 1 + delta, factor = across ? (x < 0 ? q * q : -1) * (1 / delta) : 2 + delta;
    float y = across ? x : at_least(x, ZERO);
    return (Difference){factor * y * y, 2 * factor * y};
}

/* The product, and 0 where the factor is 0 and x infinite. */
INLINE float times(float x, float factor) { return factor == 0 ? 0 : x * factor; }

ROW(q_leaky_relu, negative_slope, unused) {
    int across = steps == CROSSING && delta < -1, negative = x < 0;
    float x_slope = negative ? negative_slope : 1, b_slope = negative ? 1 : negative_slope;
    float crossed = ((1 + delta) * b_slope - x_slope) * (1 / delta);
    float slope = unless_nan(x, across ? crossed : x_slope);
    return (Difference){times(x, slope), slope};
}

/* Where x and b lie relative to [low, high), and clamp(b) - clamp(x). For b, h is compared with the
   distance to the kink, because b itself may round onto the kink. */
typedef struct {
    int x_inside, b_inside, b_above;
    float change;
} Clamped;

INLINE Clamped clamped(float x, float delta, float low, float high) {
    float clipped = at_most(at_least(x, low), high);
    float change = ((clipped == 0) | (delta < -0.5f)) ? fused(x, 1 + delta, -clipped)
                                                   : fused(x, delta, x - clipped);
    float above_low = fused(x, delta, x - low), above_high = fused(x, delta, x - high);
    return (Clamped){(x >= low) & (x < high), (above_low >= 0) & (above_high < 0), above_high >= 0,
                     at_most(at_least(change, low - clipped), high - clipped)};
}

ROW(q_hardtanh, low, high) {
    if (steps == STILL) {
        int inside = (x >= low) & (x < high);
        return (Difference){inside ? x : 0, unless_nan(x, inside ? 1 : 0)};
    }
    Clamped k = clamped(x, delta, low, high);
    int both = k.x_inside & k.b_inside;
    float inverse = 1 / delta;
    float slope = (k.b_inside ? 1 + delta : (k.x_inside ? -1.0f : -0.0f)) * inverse;
    return (Difference){both ? x : k.change * inverse, unless_nan(x, both ? 1 : slope)};
}

/* For delta > -1. */
ROW(small_hardtanh, low, high) {
    float clipped = at_most(at_least(x, low), high), sum = fused(x, delta, x - clipped);
    float rest = low - clipped, change = sum > rest ? sum : rest;
    rest = high - clipped, change = change < rest ? change : rest;
    float value = ((clipped == x) & (change == sum)) ? x : change / delta;
    Difference g = q_hardtanh(x, delta, low, high, steps);
    return (Difference){steps == STILL ? g.value : value, g.slope};
}

INLINE float hardswish_gate(float x) {
    return at_most(at_least((x + 3) * (1 / 6.0f), 0.0f), 1.0f);
}

INLINE float hardswish_slope(float x) {
    return x < -3 ? 0 : x < 3 ? (2 * x + 3) * (1 / 6.0f) : 1;
}

ROW(q_hardswish, unused1, unused2) {
    Clamped k = clamped(x, delta, -3, 3);
    float inverse = 1 / delta, q = 1 + delta, b = x * q;
    float c = 1 + at_most(delta, ZERO), far = x * (1 + at_least(delta, ZERO));
    float value = x * (hardswish_gate(far) + c * (k.change * inverse * (1 / 6.0f)));
    float value_across = (b * hardswish_gate(b) - x * hardswish_gate(x)) * inverse;

    float at_x = hardswish_slope(x);
    float at_b = k.b_inside ? (2 * b + 3) * (1 / 6.0f) : k.b_above ? 1 : 0;
    float change = k.x_inside & k.b_inside ? x * (1 / 3.0f) : (at_b - at_x) * inverse;
    float slope = (delta < 0 ? at_x : at_b) + c * change;
    float slope_across = (q * hardswish_slope(b) - at_x) * inverse;
    int across = steps == CROSSING && delta < -1;
    return (Difference){across ? value_across : value,
                        unless_nan(x, across ? slope_across : slope)};
}

/* --- exponential below zero ----------------------------------------------------------------- */

/* The slope is that of alpha = 1. */
INLINE Difference unit_elu(float x, float delta, float alpha) {
    float h = x * delta, low = at_most(x, ZERO), minus_high = low - x;
    /* The parts of h below and above zero. Each is computed from h: h minus the other part would be
       the rounding of h, not 0, where the compiler fuses the multiplication. */
    float fall = at_least(minus_high - h, low), above = at_least(h + low, minus_high);
    float larger = exponential(at_least(low - fall, low)).exp; /* elu' at max(x, b) */
    Exponential step = exponential(-magnitude(fall));
    float inverse = 1 / delta;
    float change = with_sign(step.expm1, fall) * larger; /* from b to x */
    float weight = fall < 0 ? 1 + delta : 1;
    return (Difference){(above - alpha * change) * inverse,
                        step.exp * larger - weight * (change * inverse)};
}

ROW(q_unit_elu, unused1, unused2) {
    return unit_elu(x, delta, 1);
}

ROW(q_elu, alpha, unused) {
    Difference g = unit_elu(x, delta, alpha), relu = q_relu(x, delta, 0, 0, steps);
    return (Difference){g.value, alpha * g.slope + (1 - alpha) * relu.slope};
}

/* --- the logistic function and what is built on it ------------------------------------------ */

/* sigma and related values at 0 <= near <= far, given near and far - near. Changes are divided by
   |delta| before they are multiplied by the exponential, because they may underflow. */
typedef struct {
    float inverse;               /* 1 / |delta| */
    float e_near, e_far;         /* exp(-y) */
    float sigma_near, sigma_far; /* sigma(y) */
    float rise;                  /* (sigma(far) - sigma(near)) / |delta| */
    float fall;                  /* (sigma'(near) - sigma'(far)) / |delta| */
    float sum;                   /* (sigma(far) - sigma(-near)) / |delta| */
    float gap_expm1;             /* exp(-(far - near)) - 1 */
} Logistic;

INLINE Logistic logistic(float near, float gap, float size) {
    Exponential at_near = exponential(-near), step = exponential(-gap);
    float e_near = at_near.exp, e_far = e_near * step.exp;
    float expm1_near = at_near.expm1, expm1_far = expm1_near + e_near * step.expm1;
    float below_near = 1 + e_near, below_far = 1 + e_far;
    float shared = 1 / (size * below_near * below_far);
    float sigma_near = shared * size * below_far, sigma_far = shared * size * below_near;
    float rise = step.expm1 * -shared * e_near;
    float tanh_sum = -(expm1_near * sigma_near + expm1_far * sigma_far); /* of y / 2 */
    float sum = (expm1_near + e_near * expm1_far) * -shared;
    return (Logistic){shared * below_near * below_far, e_near, e_far, sigma_near, sigma_far,
                      rise, rise * 0.5f * tanh_sum, sum, step.expm1};
}

ROW(q_sigmoid, unused1, unused2) {
    Span s = span_of(x, delta, steps);
    Logistic l = logistic(s.near, s.gap, s.size);
    float slope_far = l.e_far * l.sigma_far * l.sigma_far;
    Ends slope = ends_of(s, l.e_near * l.sigma_near * l.sigma_near, slope_far);
    float slope_across = (slope.x - s.q * slope.b) * l.inverse;
    return (Difference){with_sign(s.across ? l.sum : l.rise, x),
                        s.across ? slope_across : slope_far - s.c * l.fall};
}

ROW(q_softplus, beta, unused) {
    /* softplus(y) = relu(y) + log1p(exp(-|y|)), and the second term is even. */
    Span s = span_of(x * beta, delta, steps);
    Logistic l = logistic(s.near, s.gap, s.size);
    int negative = x < 0, growing = s.across & s.outward;
    float fall = log_of_one_plus(-l.gap_expm1 * l.e_near * l.sigma_far) * (1 / beta) * l.inverse;
    float relu = s.across ? (negative ? x * s.q : -x) * -l.inverse : at_least(x, ZERO);

    float below = l.e_far * l.sigma_far - s.c * l.rise;
    Ends sigma = ends_of(s, l.sigma_near, l.sigma_far), e = ends_of(s, l.e_near, l.e_far);
    float slope_across = ((negative ? e.x * sigma.x : sigma.x) -
                          s.q * (negative ? sigma.b : e.b * sigma.b)) * l.inverse;
    return (Difference){relu - (growing ? -fall : fall),
                        s.across ? slope_across : negative ? below : 1 - below};
}

/* --- products y s(y) ------------------------------------------------------------------------ */

/* s and s' at far, and their changes from near to far divided by |delta|. */
typedef struct {
    float value, slope, change, slope_change;
} Factor;

INLINE float product(Factor s, float x, float c) { return x * (s.value + c * s.change); }

INLINE float product_slope(Factor s, float near, float far, float c) {
    float at_far = s.value + far * s.slope;
    return at_far + c * s.change + near * (s.slope + c * s.slope_change);
}

/* g of y s(y) with s(y) + s(-y) = 1, from the factor at -near and -far; and from s (gate) and s'
   (bell) at both ends and 1 / |delta|, for where zero lies between the points. */
INLINE Difference gated(float x, Span s, Factor factor, Ends gate, Ends bell, float inverse) {
    float b = x * s.q;
    Difference at_x = {x * gate.x * inverse, (gate.x + x * bell.x) * inverse};
    Difference at_b = {b * gate.b * inverse, (gate.b + b * bell.b) * inverse};
    float below = product(factor, -magnitude(x), s.c);
    float below_slope = product_slope(factor, -s.near, -s.far, s.c);
    float value = x < 0 ? below : x + below, slope = x < 0 ? below_slope : 1 - below_slope;
    return (Difference){s.across ? at_x.value - at_b.value : value,
                        s.across ? at_x.slope - s.q * at_b.slope : slope};
}

/* y sigma(v(y)) with v odd: v at near and its gap, v' at both and its change over |delta|. */
INLINE Difference logistic_gate(float x, Span s, float v_near, float v_gap, float dv_near,
                                float dv_far, float dv_change) {
    Logistic l = logistic(v_near, v_gap, s.size);
    float tail_near = l.e_near * l.sigma_near, tail_far = l.e_far * l.sigma_far;
    float bell_near = tail_near * l.sigma_near, bell_far = tail_far * l.sigma_far;
    Factor factor = {tail_far, dv_far * bell_far, -l.rise, dv_change * bell_far - dv_near * l.fall};
    Ends tail = ends_of(s, tail_near, tail_far), sigma = ends_of(s, l.sigma_near, l.sigma_far);
    Ends gate = {x < 0 ? tail.x : sigma.x, x < 0 ? sigma.b : tail.b};
    return gated(x, s, factor, gate, ends_of(s, dv_near * bell_near, dv_far * bell_far), l.inverse);
}

ROW(q_silu, unused1, unused2) {
    Span s = span_of(x, delta, steps);
    return logistic_gate(x, s, s.near, s.gap, 1, 1, 0);
}

ROW(q_gelu_tanh, unused1, unused2) {
    const float scale = 1.595769122f, cubic = 0.044715f; /* v = scale (y + cubic y^3) */
    Span s = span_of(x, delta, steps);
    float near2 = cubic * s.near * s.near, far2 = cubic * s.far * s.far;
    float chord = 1 + near2 + far2 + cubic * s.near * s.far;
    return logistic_gate(x, s, scale * s.near * (1 + near2), scale * s.gap * chord,
                         scale * (1 + 3 * near2), scale * (1 + 3 * far2),
                         3 * scale * cubic * magnitude(x) * (s.near + s.far));
}

#define GELU_TAIL                                                                                  \
    {1.978490294e-2f, -8.089010393e-2f, 9.562072995e-2f, -3.174123772e-2f, 6.371312442e-2f,        \
     5.897019180e-2f, 8.160412907e-2f,  9.346624272e-2f, 9.973643721e-2f,  9.973556664e-2f,  0}

/* The normal tail is exp(-z^2 / 2) M(z) with M a polynomial G in w = 4 / (z + 4), G(0) = 0. Its
   change from near to far splits into that of M and that of the exponential, which have one sign;
   that of M is a divided difference of G, which Horner's rule gives beside G itself. */
ROW(q_gelu, unused1, unused2) {
    static const float G[] = GELU_TAIL;
    Span s = span_of(x, delta, steps);
    Exponential step = exponential(-0.5f * s.gap * (s.near + s.far));
    float e_near = exponential(-0.5f * s.near * s.near).exp, e_far = e_near * step.exp;
    float shared = 1 / (s.size * (s.near + 4) * (s.far + 4));
    float inverse = shared * (s.near + 4) * (s.far + 4), between = 4 * s.size * shared;
    float w_near = between * (s.far + 4), w_far = between * (s.near + 4);

    float mills_far = G[0], chord = 0; /* G(w_far) and (G(w_near) - G(w_far)) / (w_near - w_far) */
    for (int i = 1; i < 11; i++) {
        chord = chord * w_near + mills_far;
        mills_far = mills_far * w_far + G[i];
    }
    float mills_near = mills_far + chord * between * s.gap;
    float fall = e_near * (chord * between * magnitude(x) - mills_far * step.expm1 * inverse);
    float density_near = 0.398942280f * e_near, density_far = 0.398942280f * e_far;
    float tail_near = e_near * mills_near, tail_far = e_far * mills_far;
    Factor factor = {tail_far, density_far, -fall, step.expm1 * inverse * density_near};
    Ends tail = ends_of(s, tail_near, tail_far);
    Ends gate = {x < 0 ? tail.x : 1 - tail.x, x < 0 ? 1 - tail.b : tail.b};
    return gated(x, s, factor, gate, ends_of(s, density_near, density_far), inverse);
}

ROW(q_mish, unused1, unused2) {
    /* tanh(softplus(y)) is rational in e = exp(-|y|); unit is 1 below zero and e above. */
    Span s = span_of(x, delta, steps);
    Exponential step = exponential(-s.gap);
    float e_near = exponential(-s.near).exp, e_far = e_near * step.exp;
    float lower_near = x < 0 ? 1 : 0, lower_far = lower_near; /* is the point below zero? */
    lower_near = (s.across & !s.outward) ? 1 - lower_near : lower_near;
    lower_far = (s.across & s.outward) ? 1 - lower_far : lower_far;
    float unit_near = lower_near > 0 ? 1 : e_near, unit_far = lower_far > 0 ? 1 : e_far;
    float next_near = 1 + e_near, next_far = 1 + e_far;
    float below_near = next_near * next_near + unit_near * unit_near;
    float below_far = next_far * next_far + unit_far * unit_far;
    float shared = 1 / (s.size * below_near * below_far);
    float inverse_near = shared * s.size * below_far, inverse_far = shared * s.size * below_near;

    float gate_near = (lower_near > 0 ? e_near : 1) * (next_near + unit_near) * inverse_near;
    float gate_far = (lower_far > 0 ? e_far : 1) * (next_far + unit_far) * inverse_far;
    float slope_near = 4 * e_near * unit_near * next_near * inverse_near * inverse_near;
    float slope_far = 4 * e_far * unit_far * next_far * inverse_far * inverse_far;

    float unit = unit_near * unit_far, total = e_near + e_far + 2 * unit;
    float both = next_near * next_far;
    float bend = total * (unit * unit - both * both) +
                 both * (total * total - both * unit + 2 * unit * unit) - unit * unit * unit;
    float change = with_sign(step.expm1 * shared * e_near, x);
    Factor factor = {gate_far, slope_far, 2 * change * total,
                     4 * change * bend * inverse_near * inverse_far};

    float b = x * s.q, inverse = shared * below_near * below_far;
    Ends gate = ends_of(s, gate_near, gate_far), bell = ends_of(s, slope_near, slope_far);
    float value_across = (x * gate.x - b * gate.b) * inverse;
    float slope_across = (gate.x + x * bell.x - s.q * (gate.b + b * bell.b)) * inverse;
    float slope = product_slope(factor, with_sign(s.near, x), with_sign(s.far, x), s.c);
    return (Difference){s.across ? value_across : product(factor, x, s.c),
                        s.across ? slope_across : slope};
}

/* --- rational and trigonometric ------------------------------------------------------------- */

ROW(q_softsign, unused1, unused2) {
    float q = 1 + delta, b = x * q, size = magnitude(delta);
    float next_x = 1 + magnitude(x), next_b = 1 + magnitude(b);
    float shared = 1 / (size * next_x * next_b), spread = shared * size;
    float twice = 2 * magnitude(b) * (shared * next_x * next_b);
    float slope_across = (next_b * next_b - q * next_x * next_x) * shared * spread;
    int across = steps == CROSSING && delta < -1;
    return (Difference){x * spread * (across ? 1 + twice : 1),
                        across ? slope_across : (1 - x * b) * spread * spread};
}

ROW(q_sin, unused1, unused2) {
    float h = 0.5f * x * delta, inverse = 1 / delta;
    Circle half = circle(h), middle = circle(x + h);
    float chord = 2 * half.sin * inverse;
    /* cos at x and b, h on either side of the middle */
    float shared = middle.cos * half.cos, apart = middle.sin * half.sin;
    float cos_x = shared + apart, cos_b = shared - apart;
    float beside = (delta < 0 ? cos_x : cos_b) - (1 + at_most(delta, ZERO)) * middle.sin * chord;
    float across = ((1 + delta) * cos_b - cos_x) * inverse;
    return (Difference){middle.cos * chord, steps == CROSSING && delta < -1 ? across : beside};
}

/* --- the noise itself, for tests ------------------------------------------------------------ */

ROW(q_delta, unused1, unused2) {
    return (Difference){delta, 0};
}

/* --- small steps ---------------------------------------------------------------------------- */

/* Where delta > -1 and |delta x| is small, as for small lambda, half the work is enough. With the
   midpoint m = x + h / 2 of x and b and h = delta x, sums and differences of exp(+-x) and exp(+-b)
   are exp(m) times cosh(h / 2) and sinh(h / 2), which are short polynomials; sinh(h / 2) / delta is
   x sinhc(h / 2) / 2, without a division. */

ROW(small_unit_elu, unused1, unused2) {
    float low = at_most(x, ZERO), h = delta * low, m = low + 0.5f * h;
    Hyperbola half = hyperbola_of_half(h * h, steps);
    float e = exp_of(m);
    return (Difference){at_least(x, ZERO) + low * e * half.sinhc, e * (half.cosh + m * half.sinhc)};
}

ROW(small_elu, alpha, unused) {
    Difference g = small_unit_elu(x, delta, 0, 0, steps);
    float positive = at_least(x, ZERO);
    return (Difference){positive + alpha * (g.value - positive), x >= 0 ? 1 : alpha * g.slope};
}

ROW(small_sigmoid, unused1, unused2) {
    float h = delta * x, h2 = h * h, m = magnitude(x + 0.5f * h);
    Hyperbola half = hyperbola_of_half(h2, steps);
    float e = exp_of(-m);
    float below = 1 + e * (e + 2 * half.cosh); /* e 2 (cosh(m) + cosh(h / 2)) */
    float inverse = 1 / below;
    float turn = m - e * (e * m - 0.5f * h2 * half.sinhc);
    return (Difference){x * half.sinhc * e / below,
                        e * inverse * (half.cosh - inverse * half.sinhc * turn)};
}

ROW(small_silu, unused1, unused2) {
    float z = -magnitude(x), h = delta * z, h2 = h * h, m = z + 0.5f * h;
    Hyperbola half = hyperbola_of_half(h2, steps);
    float e = exp_of(m), rise = 0.25f * h2 * half.sinhc, sum = half.cosh + e;
    float inverse = 1 / (1 + e * (sum + half.cosh));
    float gate = (m * half.sinhc + sum) * (e * inverse);
    float turn = e * (rise + rise + e * m) - m;
    float slope = gate + inverse * (e * (m * sum + rise) - gate * turn);
    return (Difference){at_least(x, ZERO) + z * gate, x < 0 ? slope : 1 - slope};
}

ROW(small_hardswish, unused1, unused2) {
    float clipped = at_most(at_least(x, -3.0f), 3.0f), inverse = 1 / delta;
    float change = at_most(at_least(fused(x, delta, x - clipped), -3 - clipped), 3 - clipped);
    float value = x * (1 / 6.0f) * (clipped + change + 3 + change * inverse);

    float above_low = fused(x, delta, x + 3), above_high = fused(x, delta, x - 3);
    int x_inside = (x >= -3) & (x < 3), b_inside = (above_low >= 0) & (above_high < 0);
    float at_x = x_inside ? x * (1 / 3.0f) + 0.5f : x < -3 ? 0 : 1;
    float at_b = b_inside ? above_low * (1 / 3.0f) - 0.5f : above_high >= 0 ? 1 : 0;
    float bend = x_inside & b_inside ? x * (1 / 3.0f) : (at_b - at_x) * inverse;
    return (Difference){value, unless_nan(x, at_b + bend)};
}

/* The degree is a constant argument, because the compiler does not drop products with 0. */
INLINE float power_series(const float c[5], int degree, float z) {
    float sum = degree > 3 ? c[3] + z * c[4] : c[3];
    sum = degree > 2 ? c[2] + z * sum : c[2];
    sum = degree > 1 ? c[1] + z * sum : c[1];
    return degree > 0 ? c[0] + z * sum : c[0];
}

/* g = x (Phi(m) + m phi(m) K) and dg/dx = Phi(m) + m phi(m) (L - m^2 M), where K, L and M tend to 1,
   3 and 1: they are power series in t2 = (h / 2)^2 and z = m^2 t2. TINY steps have t2 <= 1/16 and
   z <= 1, which |delta| x^2 <= 1.8 gives; SMALL ones t2 <= 1/5 and z <= 9/4. The tail is as in
   q_gelu. */
#define GELU_STEP 0.89f /* the largest |h| and |m h| of SMALL steps */
#define GELU_TURN 3.0f
ROW(small_gelu, unused1, unused2) {
    static const float G[] = GELU_TAIL;
    static const float K[2][4][5] = {
        {{1, 1.666658407e-1f, 8.334921187e-3f, 2.000823959e-4f},
         {-6.666619797e-1f, -9.167583287e-2f, -4.437802847e-3f},
         {1.499859166e-1f, 2.347373457e-2f},
         {-2.498721848e-2f}},
        {{1, 1.666666080e-1f, 8.333216744e-3f, 1.985694407e-4f, 2.766309510e-6f},
         {-6.666634196e-1f, -9.166372864e-2f, -4.368979724e-3f, -1.029326183e-4f},
         {1.498857906e-1f, 2.282290042e-2f, 1.122228141e-3f},
         {-2.275135522e-2f, -3.848588867e-3f}}};
    static const float L[2][4][5] = {
        {{3, 1.666657263f, 1.750424734e-1f, 7.202006069e-3f},
         {-2.666667254f, -8.834687614e-1f, -7.621596416e-2f},
         {9.001985691e-1f, 2.559511131e-1f},
         {-1.921516819e-1f}},
        {{3, 1.666666371f, 1.749986775e-1f, 7.139371741e-3f, 1.577491582e-4f},
         {-2.666623033f, -8.832805766e-1f, -7.523096652e-2f, -2.827213382e-3f},
         {8.986108546e-1f, 2.521014353e-1f, 2.002059065e-2f},
         {-1.788367112e-1f, -5.112411769e-2f}}};
    static const float M[2][5] = {
        {1, 1.666655515e-1f, 8.336293565e-3f, 1.987027675e-4f},
        {1, 1.666666417e-1f, 8.333471186e-3f, 1.981950973e-4f, 2.884321911e-6f}};
    const int more = steps > TINY; /* one degree more */
    float size = magnitude(x), h = delta * size, m = size + 0.5f * h;
    float t2 = 0.25f * h * h, m2 = m * m, z = m2 * t2;
    float e = exp_of(-0.5f * m2), w = 4 / (m + 4), mills = G[0];
    for (int i = 1; i < 11; i++) mills = mills * w + G[i];
    float tail = e * mills, slant = 0.398942280f * e * m, k = 0, l = 0;
    for (int i = 3; i >= 0; i--) {
        k = k * t2 + power_series(K[more][i], 3 - i + more, z);
        l = l * t2 + power_series(L[more][i], 3 - i + more, z);
    }
    float value = size * (tail - slant * k);
    float slope = tail - slant * (l - m2 * power_series(M[more], 3 + more, z));
    return (Difference){at_least(x, ZERO) - value, x < 0 ? slope : 1 - slope};
}

/* --- rows that are made from others, for any steps and for small ones ------------------------ */

#define DERIVED_ROWS(q)                                                                           \
    ROW(q##_relu6, unused1, unused2) { return q##_hardtanh(x, delta, 0, 6, steps); }              \
    ROW(q##_hardsigmoid, unused1, unused2) {                                                      \
        Difference g = q##_hardtanh(x, delta, -3, 3, steps);                                      \
        return (Difference){g.value * (1 / 6.0f), g.slope * (1 / 6.0f)};                          \
    }                                                                                             \
    ROW(q##_selu, unused1, unused2) {                                                             \
        Difference g = q##_elu(x, delta, 1.67326324f, 0, steps);                                  \
        return (Difference){1.05070099f * g.value, 1.05070099f * g.slope};                        \
    }                                                                                             \
    ROW(q##_celu, alpha, unused) {                                                                \
        Difference g = q##_unit_elu(x * (1 / alpha), delta, 0, 0, steps);                         \
        return (Difference){alpha * g.value, g.slope};                                            \
    }                                                                                             \
    ROW(q##_tanh, unused1, unused2) {                                                             \
        Difference g = q##_sigmoid(2 * x, delta, 0, 0, steps);                                    \
        return (Difference){2 * g.value, 4 * g.slope};                                            \
    }                                                                                             \
    ROW(q##_quick_gelu, unused1, unused2) {                                                       \
        Difference g = q##_silu(1.702f * x, delta, 0, 0, steps);                                  \
        return (Difference){g.value * (1 / 1.702f), g.slope};                                     \
    }
DERIVED_ROWS(q)
DERIVED_ROWS(small)

/* --- far from zero -------------------------------------------------------------------------- */

#define FAR_X 0x1p30f /* from here on steps are FAR */

INLINE float clip(float x, float bound) { return at_most(at_least(x, -bound), bound); }

/* Rows that tend to line times relu plus constants: x is split into a part for the form, and a rest
   over which the row is straight. unit is the scale on which it bends. At the bound even |b| is some
   hundred units, or b is 0. */
#define STRAIGHT_ROW(name, line, unit)                                                            \
    ROW(far_##name, first, second) {                                                              \
        float y = clip(x, at_most((unit) * 0x1p35f, FLT_MAX));                                    \
        Difference g = q_##name(y, delta, first, second, steps);                                  \
        Difference rest = q_relu(x - y, delta, 0, 0, steps);                                      \
        return (Difference){g.value + (line) * rest.value, g.slope};                              \
    }
STRAIGHT_ROW(hardswish, 1, 1)
STRAIGHT_ROW(elu, 1, 1)
STRAIGHT_ROW(unit_elu, 1, 1)
STRAIGHT_ROW(selu, 1.05070099f, 1)
STRAIGHT_ROW(celu, 1, first)
STRAIGHT_ROW(softplus, 1, 1 / first)
STRAIGHT_ROW(silu, 1, 1)
STRAIGHT_ROW(quick_gelu, 1, 1)
STRAIGHT_ROW(gelu, 1, 1)
STRAIGHT_ROW(gelu_tanh, 1, 1)
STRAIGHT_ROW(mish, 1, 1)

/* Rows with bounds need only a finite x, which tanh may double. */
#define BOUNDED_ROW(name)                                                                         \
    ROW(far_##name, first, second) {                                                              \
        return q_##name(clip(x, 0x1p126f), delta, first, second, steps);                          \
    }
BOUNDED_ROW(hardtanh)
BOUNDED_ROW(relu6)
BOUNDED_ROW(hardsigmoid)
BOUNDED_ROW(sigmoid)
BOUNDED_ROW(tanh)

ROW(far_softsign, unused1, unused2) {
    float q = 1 + delta, z_x = magnitude(x), z_b = q == 0 ? 0 : z_x * magnitude(q);
    float inverse_x = 1 / (1 + z_x), inverse_b = 1 / (1 + z_b), both = inverse_x * inverse_b;
    float size_x = at_most(z_x, 0x1p100f), size_b = at_most(z_b, 0x1p100f);
    float ratio_x = size_x / (1 + size_x), ratio_b = size_b / (1 + size_b);
    int across = delta < -1;
    float slope_across = (q * inverse_b * inverse_b - inverse_x * inverse_x) / delta;
    return (Difference){with_sign(across ? (ratio_x + ratio_b) / -delta : ratio_x * inverse_b, x),
                        across ? slope_across : (both - ratio_x * ratio_b) * both};
}
