//! `slidegate schema`: the JSON Schema of a configuration file, for editors.

/// It is written by hand, and `tests/schema.rs` compares it with the reader. `docs` has a copy, which
/// has an address.
///
/// Outside of `not`, it has no `allOf`: the completion of taplo, which editors use, never returns from
/// one. An `anyOf` with one element means the same.
pub(crate) const SCHEMA: &str = include_str!("schema.json");

/// The first line of a file, by which editors find the schema.
pub(crate) const SCHEMA_LINE: &str = "#:schema https://raw.githubusercontent.com/slidegate/slidegate/main/docs/slidegate.schema.json";

pub(crate) const SCHEMA_HELP: &str = "\
Editors with taplo, such as Visual Studio Code with the extension Even Better TOML, complete keys and
mark mistakes in a file whose first line names the schema, by a URL or by a path relative to the file:

  #:schema https://raw.githubusercontent.com/slidegate/slidegate/main/docs/slidegate.schema.json
  #:schema ./slidegate.schema.json

The schema knows the form of every value. `slidegate check` also knows what values mean together.

Examples:
  slidegate schema > slidegate.schema.json         the schema of this version, for the second line
  taplo check --schema file://$PWD/slidegate.schema.json slidegate.toml
                                                   check a file on the command line";
