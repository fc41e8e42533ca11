/* Means from tables of cubic pieces, whose layout is mean_table.Table's. */

enum { SPAN = 512 }; /* elements whose pieces are found before they are used, so that loops vectorise */

typedef struct {
    const float *x, *pieces, *centres;
    float *out;
    int64_t per_table, num_tables, num_pieces, num_centres, spans_per_table, num_spans, share;
    _Atomic int64_t next;
} LookUp;

static void find_pieces(const LookUp *job, const float *restrict x, int num, int32_t *restrict piece) {
    float position[SPAN] = {0};
    for (int centre = 0; centre < job->num_centres; centre++) {
        float point = job->centres[centre], scale = job->centres[job->num_centres + centre];
        float density = job->centres[2 * job->num_centres + centre];
        for (int i = 0; i < num; i++) {
            float distance = x[i] - point;
            float term = minus_twice_log(1 + magnitude(distance) * scale) * (-0.5f * density);
            /* Even the smallest negative distance belongs to the piece below. */
            position[i] += with_sign(at_least(term, 1e-30f), distance < 0 ? -1.0f : 1.0f);
        }
    }
    float half = job->num_pieces / 2, last = half - 1;
    for (int i = 0; i < num; i++) {
        float inside = at_most(at_least(position[i], -half), last);
        int32_t towards_zero = (int32_t)inside;
        piece[i] = towards_zero - (inside < (float)towards_zero) + (int32_t)half;
    }
}

/* Two pieces about zero, where all other coefficients are 0. To choose them takes much less time
   than to load them for each x. */
static void look_up_two(const LookUp *job, const float *restrict x, int num, float *restrict out) {
    const float *slopes = job->pieces + 4, *curvatures = job->pieces + 6;
    float slope_below = slopes[0], slope_above = slopes[1];
    float curvature_below = curvatures[0], curvature_above = curvatures[1];
    for (int i = 0; i < num; i++) {
        float slope = x[i] < 0 ? slope_below : slope_above;
        slope = fused(clip(x[i], FLT_MAX), x[i] < 0 ? curvature_below : curvature_above, slope);
        out[i] = times(x[i], slope);
    }
}

static void look_up_span(const LookUp *job, int64_t span) {
    int64_t table = span / job->spans_per_table, start = span % job->spans_per_table * SPAN;
    int64_t left = job->per_table - start, row = job->num_tables * job->num_pieces;
    int num = left < SPAN ? left : SPAN;
    const float *restrict x = job->x + table * job->per_table + start;
    const float *restrict origin = job->pieces + table * job->num_pieces;
    float *restrict out = job->out + table * job->per_table + start;
    if (row == 2) {
        look_up_two(job, x, num, out);
        return;
    }
    int32_t piece[SPAN];
    find_pieces(job, x, num, piece);
    float steps[SPAN], slopes[SPAN], means[SPAN];
    for (int i = 0; i < num; i++) {
        const float *of_piece = origin + piece[i];
        steps[i] = x[i] - of_piece[0];
        means[i] = of_piece[row];
        float finite = clip(steps[i], FLT_MAX);
        float slope = fused(finite, of_piece[4 * row], of_piece[3 * row]);
        slopes[i] = fused(finite, slope, of_piece[2 * row]);
    }
    /* Not inf * 0. In the loop above it would be a branch, which half the x of relu6 would miss. */
    for (int i = 0; i < num; i++) out[i] = fused(slopes[i] == 0 ? 0 : steps[i], slopes[i], means[i]);
}

static void look_up_all(void *argument) {
    LookUp *job = argument;
    for (;;) {
        int64_t first = atomic_fetch_add(&job->next, job->share), last = first + job->share;
        if (first >= job->num_spans) return;
        for (int64_t i = first; i < last && i < job->num_spans; i++) look_up_span(job, i);
    }
}

void qneurons_look_up(const float *x, const float *pieces, const float *centres, float *out,
                      int64_t num, int64_t num_tables, int64_t num_pieces, int64_t num_centres,
                      Team *team, int num_threads) {
    int64_t per_table = num / num_tables, spans_per_table = (per_table + SPAN - 1) / SPAN;
    LookUp job = {.x = x, .pieces = pieces, .centres = centres, .out = out, .per_table = per_table,
                  .num_tables = num_tables, .num_pieces = num_pieces, .num_centres = num_centres,
                  .spans_per_table = spans_per_table, .num_spans = num_tables * spans_per_table};
    expect_writes(out, num * 4);
    job.share = 1 + (job.num_spans - 1) / (4 * num_threads);
    if (num_threads > 1) team(look_up_all, &job, num_threads, 0);
    else look_up_all(&job);
}
