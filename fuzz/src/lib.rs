//! Runs fuzz targets: tests that check a property of any bytes.
//!
//! `cargo test` replays the target's corpus (`fuzz/corpus/TARGET`) and then tries changed inputs of it
//! for a second. `scripts/fuzz TARGET` builds the same test with libFuzzer, which follows the code's
//! branches and can run for hours.

mod edits;

use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::edits::{EditedInput, EditedInputs};

/// How long a test tries inputs at random; `BOLERO_RANDOM_TEST_TIME_MS` outweighs it.
const TEST_TIME: Duration = Duration::from_secs(1);

/// With a file in it, only that input is tried.
const INPUT_VARIABLE: &str = "FUZZ_INPUT";

/// The file in a corpus of the last input that failed.
const FAILED_INPUT: &str = "failed";

/// How `scripts/fuzz` tells a test to run libFuzzer.
const LIBFUZZER_VARIABLE: &str = "BOLERO_LIBFUZZER_ARGS";

/// Checks that a property, which panics where it does not hold, is true of any input.
///
/// An input of which it is not true is saved into the corpus, and a command is shown that tries it again.
pub fn check(target: &str, property: impl Fn(&[u8])) {
    // After a failure nothing but the same input is tried, to make it shorter.
    let property = AssertUnwindSafe(property);
    if std::env::var_os(LIBFUZZER_VARIABLE).is_some() {
        bolero::check!(name = target).for_each(|input: &[u8]| (*property)(input));
        return;
    }
    if let Some(path) = std::env::var_os(INPUT_VARIABLE) {
        replay(Path::new(&path), &*property);
        return;
    }
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let files = files_in(&corpus);
    assert!(!files.is_empty(), "{} has no inputs", corpus.display());
    let inputs = files.iter().map(|path| replay(path, &*property)).collect();

    let saved = corpus.join(FAILED_INPUT);
    let _hint = OnPanic(|| show_command(&saved));
    bolero::check!(name = target)
        .with_generator(EditedInputs::new(inputs))
        .with_test_time(TEST_TIME)
        .for_each(|EditedInput(input)| {
            let _saves = OnPanic(|| fs::write(&saved, input).unwrap_or_default());
            (*property)(input);
        });
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
