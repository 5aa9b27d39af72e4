//! What the API server was asked, and by whom.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use serde_json::Value;

use super::KubeApi;
use crate::Error;

impl KubeApi {
    /// Every request that the API server has answered, oldest first, over all its starts: who asked
    /// (`user.username`), `verb`, `objectRef`, `responseStatus.code`. A watch is in it twice, with
    /// the `stage` `ResponseStarted` when it begins and `ResponseComplete` when it has ended. A
    /// request is in it before its answer arrives.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn audit(&self) -> Result<Vec<Value>, Error> {
        self.audit_since(&mut 0)
    }

    /// The same from this position in the file on, which is moved to the end of what was read. For
    /// looking again and again; 0 is the beginning.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn audit_since(&self, position: &mut u64) -> Result<Vec<Value>, Error> {
        let path = self.files.audit_log();
        let failed = |e| Error::io(format!("read {}", path.display()), e);
        let read = || {
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(*position))?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok(text)
        };
        let text: String = read().map_err(failed)?;
        // Of a line that is being written there is no more than a part.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        *position += whole.len() as u64;
        whole
            .lines()
            .map(|line| serde_json::from_str(line).map_err(|e| failed(e.into())))
            .collect()
    }
}
