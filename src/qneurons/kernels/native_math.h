/* Elementary functions in float32 without branches, tables or calls, so that loops vectorise. */

#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float magnitude(float x) { return __builtin_fabsf(x); }

static inline float with_sign(float size, float sign) { return __builtin_copysignf(size, sign); }

/* The first argument, clamped; a NaN passes, which it would not with the operands exchanged. */
static inline float at_least(float x, float low) { return x < low ? low : x; }

static inline float at_most(float x, float high) { return x > high ? high : x; }

/* Not constants, and visible from outside, so that the compiler cannot know their values: a clamp
   to a constant becomes a comparison and a choice, one to a variable a single instruction. */
float qneurons_zero = 0.0f, qneurons_lowest_exponent = -88.0f;
#define ZERO qneurons_zero

/* a * b + c in one rounding where the processor can, for what lies next to a kink. */
static inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* Adding it rounds to an integer, which the low bits of the sum then hold. */
#define ROUNDER 12582912.0f

typedef struct {
    float exp, expm1;
} Exponential;

/* exp(x) and exp(x) - 1 for x <= 0, to 2 ulp where multiplications are fused, else to 2 + |x| / 2;
   exp(x) is 0 once it is below the normal numbers. */
static inline Exponential exponential(float x) {
    x = at_least(x, qneurons_lowest_exponent);
    float shifted = x * 1.44269504f + (ROUNDER + 127);
    float r = x - (shifted - (ROUNDER + 127)) * 0.693147181f;
    float tail = 4.166722098e-2f + r * (8.367172394e-3f + r * 1.388239820e-3f);
    tail = 4.999999804e-1f + r * (1.666653875e-1f + r * tail);
    float change = r + r * r * tail;
    float scale = float_of(bits_of(shifted) << 23); /* 2^n, and 0 for n = -127 */
    return (Exponential){scale * change + scale, scale * change + (scale - 1)};
}

/* -2 log(u) for normal u > 0, accurate relative to itself also near u = 1. */
static inline float minus_twice_log(float u) {
    uint32_t above = bits_of(u) - 0x3f3504f3; /* sqrt(1/2) */
    float exponent = (float)((int32_t)above >> 23);
    float f = float_of(bits_of(u) - (above & 0xff800000)) - 1;
    float tail = 2 * -1.491841425e-1f + f * (2 * 1.430692542e-1f + f * (2 * -8.732630729e-2f));
    tail = 2 * 2.500175147e-1f + f * (2 * -1.996204441e-1f + f * (2 * 1.657060075e-1f + f * tail));
    tail = 2 * 4.999999164e-1f + f * (2 * -3.333395074e-1f + f * tail);
    return f * (f * tail - 2) + exponent * -1.386294361f;
}

/* log(1 + y) for 0 <= y <= 1, as 2 artanh(y / (2 + y)). */
static inline float log_of_one_plus(float y) {
    float s = y / (2 + y), s2 = s * s;
    float tail = 6.666641317e-1f +
                 s2 * (4.002169720e-1f + s2 * (2.799916990e-1f + s2 * 2.802432515e-1f));
    return 2 * s + s * s2 * tail;
}

/* sin(pi s) for |s| <= 1/2. */
static inline float sin_pi(float s) {
    float s2 = s * s;
    float tail = -5.982318480e-1f + s2 * 7.754143182e-2f;
    return s * (3.141592636f + s2 * (-5.167709578f + s2 * (2.550067942f + s2 * tail)));
}

typedef struct {
    float cosh, sinhc; /* sinhc(t) = sinh(t) / t */
} Hyperbola;

/* For |t| <= 1.5, from its square. */
static inline Hyperbola hyperbola(float t2) {
    float cosh = 4.166853473e-2f + t2 * (1.386199928e-3f + t2 * 2.629051995e-5f);
    float sinhc = 8.333520501e-3f + t2 * (1.981550079e-4f + t2 * 2.893984726e-6f);
    return (Hyperbola){1 + t2 * (4.999996102e-1f + t2 * cosh),
                       1 + t2 * (1.666666250e-1f + t2 * sinhc)};
}

typedef struct {
    float sin, cos;
} Circle;

/* The error is that of a rounding of x up to |x| = 6e6; beyond, only |sin|, |cos| <= 1 is kept. */
static inline Circle circle(float x) {
    float shifted = x * 0.636619772f + ROUNDER;
    uint32_t quarter = bits_of(shifted);
    float n = shifted - ROUNDER;
    float r = x - n * 1.5703125f - n * 4.837512969970703125e-4f - n * 7.549789948768648e-8f;
    r = at_most(at_least(r, -1.0f), 1.0f);
    float r2 = r * r;
    float odd = r + r * r2 * (-1.666665485e-1f + r2 * (8.332172304e-3f + r2 * -1.951648276e-4f));
    float even = 1 - 0.5f * r2 +
                 r2 * r2 * (4.166664672e-2f + r2 * (-1.388735982e-3f + r2 * 2.443753594e-5f));
    float sin = quarter & 1 ? even : odd, cos = quarter & 1 ? odd : even;
    return (Circle){float_of(bits_of(sin) ^ (quarter & 2) << 30),
                    float_of(bits_of(cos) ^ ((quarter + 1) & 2) << 30)};
}
