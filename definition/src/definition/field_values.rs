//! Serialization of values for which JSON has no form.

use serde::Serializer;

/// Writes a number. One that is not finite is written as a string, which the loader reports: as `null` it would be read as the
/// default.
// serde calls this function with a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(super) fn finite_or_text<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
    if number.is_finite() {
        to.serialize_f64(*number)
    } else {
        to.collect_str(number)
    }
}
