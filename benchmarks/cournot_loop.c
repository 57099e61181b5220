/* Algorithm 1 on the separable Cournot market, x of shape (N, D) stored by rows: the yardstick in C.

   `as_declared` evaluates each oracle as the algorithm declares it: F with its totals, f at x_k and its pullback,
   f at x_{k+1}. `fused` is what a person writes who knows that all three need the same totals: one pass over
   the arrays. Both keep the average of the iterates and learn the slope b. */

static inline double positive(double u) { return u > 0.0 ? u : 0.0; }
static inline double clip(double v, double low, double high) { return v <= low ? low : (v >= high ? high : v); }

static inline void totals(long N, long D, const double *restrict x, double *restrict X) {
  for (long d = 0; d < D; d++) X[d] = 0.0;
  for (long i = 0; i < N; i++)
    for (long d = 0; d < D; d++) X[d] += x[i * D + d];
}

/* s = {a, cap, capacity, b_low, b_high, h, c, gamma, rho, eta, b0}; work holds N*D + 2*D numbers. */
double as_declared(long N, long D, long K, const double *restrict r, const double *restrict g,
                   const double *restrict s, double *restrict x, double *restrict F_prev, double *restrict mean,
                   double *restrict lam, double *restrict work) {
  double *restrict F = work, *restrict X = work + N * D, *restrict w = X + D, b = s[10];
  for (long k = 0; k < K; k++) {
    totals(N, D, x, X);
    for (long i = 0; i < N; i++)
      for (long d = 0; d < D; d++) {
        long j = i * D + d;
        F[j] = r[j] * x[j] + g[j] + (b * (X[d] + x[j]) - s[0]);
      }
    totals(N, D, x, X);
    for (long d = 0; d < D; d++) w[d] = -b * positive(s[8] * (s[0] - b * X[d] - s[1]) + lam[d]);
    for (long i = 0; i < N; i++)
      for (long d = 0; d < D; d++) {
        long j = i * D + d;
        x[j] = clip(x[j] - s[7] * (F[j] + (F[j] - F_prev[j]) + w[d]), 0.0, s[2]);
      }
    totals(N, D, x, X);
    for (long d = 0; d < D; d++) lam[d] = positive(lam[d] + s[8] * (s[0] - b * X[d] - s[1]));
    double share = 1.0 / (k + 1.0);
    for (long j = 0; j < N * D; j++) mean[j] += share * (x[j] - mean[j]);
    double *restrict swap = F; F = F_prev; F_prev = swap;
    b = clip(b - s[9] * (s[5] * b - s[6]), s[3], s[4]);
  }
  return b;
}

double fused(long N, long D, long K, const double *restrict r, const double *restrict g, const double *restrict s,
             double *restrict x, double *restrict F_prev, double *restrict mean, double *restrict lam,
             double *restrict work) {
  double *restrict X = work, *restrict X_next = work + D, w[D], b = s[10];
  totals(N, D, x, X);
  for (long k = 0; k < K; k++) {
    double share = 1.0 / (k + 1.0);
    for (long d = 0; d < D; d++) {
      w[d] = -b * positive(s[8] * (s[0] - b * X[d] - s[1]) + lam[d]);
      X_next[d] = 0.0;
    }
    for (long i = 0; i < N; i++)
      for (long d = 0; d < D; d++) {
        long j = i * D + d;
        double F = r[j] * x[j] + g[j] + (b * (X[d] + x[j]) - s[0]);
        double v = clip(x[j] - s[7] * (F + (F - F_prev[j]) + w[d]), 0.0, s[2]);
        x[j] = v;
        F_prev[j] = F;
        mean[j] += share * (v - mean[j]);
        X_next[d] += v;
      }
    for (long d = 0; d < D; d++) {
      X[d] = X_next[d];
      lam[d] = positive(lam[d] + s[8] * (s[0] - b * X[d] - s[1]));
    }
    b = clip(b - s[9] * (s[5] * b - s[6]), s[3], s[4]);
  }
  return b;
}
