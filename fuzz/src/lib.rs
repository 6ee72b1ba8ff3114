//! Runs fuzz targets: tests that check a property of any bytes.
//!
//! `cargo test` replays the target's corpus (`fuzz/corpus/TARGET`) and then tries changed inputs of it,
//! the same ones each time, for at most a second. `scripts/fuzz TARGET` builds the same test with libFuzzer, which follows the code's
//! branches and can run for hours.

mod edits;

use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use fastrand::Rng;

use self::edits::EditedInputs;

/// How long a test tries changed inputs, and how many at most: a fast machine tries none that was never
/// tried before.
const TEST_TIME: Duration = Duration::from_secs(1);
const TEST_INPUTS: u64 = 10_000;

/// For so many seconds, however many inputs that are.
const SECONDS_VARIABLE: &str = "FUZZ_SECONDS";

/// The number that the changes follow from. Always the same one, so that a test that passed fails only
/// after a change of the code, of the corpus or of this crate.
const SEED_VARIABLE: &str = "FUZZ_SEED";
const SEED: u64 = 1;

/// With a file in it, only that input is tried.
const INPUT_VARIABLE: &str = "FUZZ_INPUT";

/// The file in a corpus of the last input that failed.
const FAILED_INPUT: &str = "failed";

/// How `scripts/fuzz` tells a test to run libFuzzer.
const LIBFUZZER_VARIABLE: &str = "BOLERO_LIBFUZZER_ARGS";

/// Checks that a property, which panics where it does not hold, is true of any input.
///
/// An input of which it is not true is saved into the corpus, and a command is shown that tries it again.
#[expect(clippy::disallowed_methods, reason = "a test may last for so much real time")]
pub fn check(target: &str, property: impl Fn(&[u8])) {
    if std::env::var_os(LIBFUZZER_VARIABLE).is_some() {
        let property = AssertUnwindSafe(property);
        bolero::check!(name = target).for_each(|input: &[u8]| (*property)(input));
        return;
    }
    if let Some(path) = std::env::var_os(INPUT_VARIABLE) {
        replay(Path::new(&path), &property);
        return;
    }
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let files = files_in(&corpus);
    assert!(!files.is_empty(), "{} has no inputs", corpus.display());
    let inputs = files.iter().map(|path| replay(path, &property)).collect();

    let saved = corpus.join(FAILED_INPUT);
    let inputs = EditedInputs::new(inputs);
    let mut rng = Rng::with_seed(number_in(SEED_VARIABLE).unwrap_or(SEED));
    let (time, most) = match number_in(SECONDS_VARIABLE) {
        Some(seconds) => (Duration::from_secs(seconds), u64::MAX),
        None => (TEST_TIME, TEST_INPUTS),
    };
    let (began, mut tried) = (Instant::now(), 0);
    while tried < most && began.elapsed() < time {
        let input = inputs.next(&mut rng);
        let _saves = OnPanic(|| {
            fs::write(&saved, &input).unwrap_or_default();
            show_command(&saved);
        });
        property(&input);
        tried += 1;
    }
    eprintln!("{tried} changed inputs of {target} in {:.1} s", began.elapsed().as_secs_f64());
}

/// The number in a variable of the environment, if there is one.
fn number_in<N: FromStr>(variable: &str) -> Option<N> {
    let text = std::env::var(variable).ok()?;
    let Ok(number) = text.parse() else { panic!("{variable} is no number: {text}") };
    Some(number)
}

/// Tries one input, and returns it.
fn replay(path: &Path, property: impl Fn(&[u8])) -> Vec<u8> {
    let input = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let _hint = OnPanic(|| show_command(path));
    property(&input);
    input
}

/// The inputs of a corpus, in the same order each time, so that a seed means the same.
fn files_in(corpus: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(corpus).into_iter().flatten().filter_map(Result::ok);
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// Shows how to try an input again in the current test. Cargo names the package, and threads of tests
/// have the names of their tests.
fn show_command(input: &Path) {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let input = input.display();
    eprintln!(
        "\nto try the input again:\n\
         {INPUT_VARIABLE}={input} cargo test --all-features -p {package} {test}"
    );
}

/// Does something if a panic passes by.
struct OnPanic<F: Fn()>(F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}
