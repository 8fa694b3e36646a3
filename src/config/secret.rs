//! Values that may be secret: written here, in a file, or in a variable. Never shown in a fault.

use std::io::Read;

use super::reader::{Reader, Section};
use super::setting::Setting;

/// Files of secrets are small; a larger one is a wrong path.
const LARGEST: u64 = 64 * 1024;

/// Reads exactly one of three keys: the value itself, the name of a variable that holds it, or a file that does.
pub(super) fn one_of<'a>(
    reader: &mut Reader<'a>,
    section: &mut Section<'a>,
    [plain, variable, file]: [&'static str; 3],
) -> Option<String> {
    let written: Option<String> = section.get(reader, plain);
    let named: Option<String> = section.get(reader, variable);
    let filed: Option<String> = section.get(reader, file);
    let present = [plain, variable, file].into_iter().filter(|key| section.has(reader, key)).count();
    if present != 1 {
        let message = format!("set exactly one of {plain}, {variable}, {file} and sha256");
        section.fault(reader, plain, message);
        return None;
    }
    let read = match (named, filed) {
        (Some(name), _) => (variable, of_variable(reader, &name)),
        (None, Some(path)) => (file, of_file(&path)),
        (None, None) => (plain, Ok(written?)),
    };
    match read {
        (_, Ok(value)) => Some(value),
        (key, Err(message)) => {
            section.fault(reader, key, message);
            None
        }
    }
}

/// The value of a variable that the configuration names.
pub(super) fn of_variable(reader: &mut Reader<'_>, name: &str) -> Result<String, String> {
    match reader.variable(name) {
        Some("") => Err(format!("the variable {} is empty", name.escape_debug())),
        Some(value) => Ok(value.to_owned()),
        None => Err(format!("the variable {} is not set", name.escape_debug())),
    }
}

/// The text of a file that the configuration names, without the end of its last line.
pub(super) fn of_file(path: &str) -> Result<String, String> {
    let shown = path.escape_debug();
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| format!("cannot read {shown}: {error}"))?;
    if text.len() as u64 > LARGEST {
        return Err(format!("{shown} is larger than 64 KiB, so it is hardly a secret; is the path right?"));
    }
    let value = text.trim_end_matches(['\r', '\n']);
    String::from_text(value).map_err(|_| format!("{shown} is empty"))
}
