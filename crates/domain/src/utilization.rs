//! The share of a GPU that an engine is given, so that the engine does not take more than its claim.

use std::fmt;

use crate::Bytes;

/// A share of one GPU in ten-thousandths, rounded down: vLLM's `--gpu-memory-utilization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Utilization(u16);

/// The error for a claim that cannot be given to an engine as a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UtilizationError {
    /// The claim is more than the GPU has. It is refused and not cut: an engine with less than it needs would fail
    /// later, with a worse message.
    #[error("{claim} is more than the GPU's {total}")]
    MoreThanAll {
        /// The slot's claim.
        claim: Bytes,
        /// The total memory, as CUDA reports it.
        total: Bytes,
    },
    /// The claim is so small that its share rounds to zero.
    #[error("{claim} of {total} is less than a ten-thousandth")]
    Nothing {
        /// The slot's claim.
        claim: Bytes,
        /// The total memory, as CUDA reports it.
        total: Bytes,
    },
}

impl Utilization {
    const ONE: u128 = 10_000;

    /// Returns the largest share of `total` (as CUDA reports it) that does not exceed `claim`.
    pub fn of(claim: Bytes, total: Bytes) -> Result<Self, UtilizationError> {
        if claim > total {
            return Err(UtilizationError::MoreThanAll { claim, total });
        }
        let share = (u128::from(claim.get()) * Self::ONE).checked_div(u128::from(total.get())).unwrap_or(0);
        match u16::try_from(share) {
            Ok(share) if share > 0 => Ok(Self(share)),
            _ => Err(UtilizationError::Nothing { claim, total }),
        }
    }
}

/// Formats the share with four decimals, as the flag takes it.
impl fmt::Display for Utilization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:04}", self.0 / 10_000, self.0 % 10_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn share(claim: u64, total: u64) -> Result<String, UtilizationError> {
        Utilization::of(Bytes::gib(claim), Bytes::gib(total)).map(|share| share.to_string())
    }

    #[test]
    fn p20_the_share_is_rounded_down_and_never_cut() {
        assert_eq!(share(8, 80).as_deref(), Ok("0.1000"));
        assert_eq!(share(16, 24).as_deref(), Ok("0.6666"));
        assert_eq!(share(100 / 2, 80).as_deref(), Ok("0.6250"), "100 over two GPUs of 80");
        assert!(matches!(share(16, 12), Err(UtilizationError::MoreThanAll { .. })));
    }

    proptest! {
        #[test]
        fn p20_an_engine_never_takes_more_than_its_claim(claim in 1u64..1 << 40, total in 1u64..1 << 40) {
            if let Ok(share) = Utilization::of(Bytes::new(claim), Bytes::new(total)) {
                prop_assert!(u128::from(share.0) * u128::from(total) <= u128::from(claim) * Utilization::ONE);
            }
        }
    }
}
