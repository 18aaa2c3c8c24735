//! Calls of code that may panic on data from outside, such as a template language or a schema library.
//!
//! A panic that is caught is a value of its own type: it fails what was
//! asked for and nothing else.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

thread_local!(static GUARDED: Cell<u32> = const { Cell::new(0) });

/// A panic that was caught.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("panic: {0}")]
pub struct Panicked(pub String);

impl Panicked {
    /// Makes it from what a panic carries.
    #[must_use]
    pub fn of(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self(text.unwrap_or_else(|| "without a message".to_owned()))
    }
}

/// Calls foreign code. What it was given is not used again after a panic.
///
/// # Errors
/// Returns the panic, if it ended by one. Nothing is printed then.
pub fn call<T>(code: impl FnOnce() -> T) -> Result<T, Panicked> {
    struct Leaves;
    impl Drop for Leaves {
        fn drop(&mut self) {
            GUARDED.set(GUARDED.get() - 1);
        }
    }
    GUARDED.set(GUARDED.get() + 1);
    let _leaves = Leaves;
    panic::catch_unwind(AssertUnwindSafe(code)).map_err(|panic| Panicked::of(panic.as_ref()))
}

/// Prints panics by this function from now on, for the whole process. Those that [`call`] catches are not printed: they
/// are reported where they belong. Only the first call in a process counts.
pub fn print_panics_by(print: impl Fn(&PanicHookInfo<'_>) + Send + Sync + 'static) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        panic::set_hook(Box::new(move |panic| {
            if GUARDED.get() == 0 {
                print(panic);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_value() {
        assert_eq!(call(|| 1), Ok(1));
        let (zero, none) = (std::hint::black_box(0), [0_u8; 0]);
        let divided = call(|| 1 % zero).expect_err("a panic");
        assert!(divided.to_string().contains("divisor of zero"), "{divided}");
        assert!(call(|| none[zero]).is_err());
        assert_eq!(
            call(|| call(|| panic!("inner {zero}"))),
            Ok(Err(Panicked("inner 0".to_owned())))
        );
        assert_eq!(GUARDED.get(), 0, "each call has left");
    }
}
