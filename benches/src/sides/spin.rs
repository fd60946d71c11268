//! Computation that takes 20 ms of a core.

/// Number of arithmetic rounds, equal on every side.
#[derive(Clone, Copy, Debug)]
pub struct Spin(u64);

impl Spin {
    /// Creates a computation of no rounds.
    pub fn none() -> Self {
        Self(0)
    }

    /// Measures how many rounds take 20 ms. The machine should be idle.
    pub fn calibrated() -> Self {
        let probe = Self(2_000_000);
        let best = (0..5).map(|_| probe.timed()).fold(f64::MAX, f64::min);
        Self((probe.0 as f64 * 20_000.0 / best) as u64)
    }

    /// Executes the computation.
    pub fn work(self) -> u64 {
        (0..self.0).fold(0, |sum, n| std::hint::black_box(sum ^ n).wrapping_mul(31))
    }

    #[allow(clippy::disallowed_methods)] // a benchmark measures real time
    fn timed(self) -> f64 {
        let start = std::time::Instant::now();
        std::hint::black_box(self.work());
        start.elapsed().as_secs_f64() * 1e6
    }
}
