//! The simulated disk's names: a tree of directories, each with its entries as they are now, as they are on the platters, and the
//! changes between the two in their order.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Component, Path};

use super::inode::{Content, InodeId};
use crate::disk::{Entry, Metadata};

const ROOT: InodeId = 0;

/// One change of a directory that no sync has made durable yet. A rename inside a directory is one change.
#[derive(Debug, Clone)]
pub(super) struct NameChange {
    pub(super) unset: Option<String>,
    pub(super) set: Option<(String, InodeId)>,
}

impl NameChange {
    pub(super) fn apply(&self, to: &mut BTreeMap<String, InodeId>) {
        if let Some(name) = &self.unset {
            to.remove(name);
        }
        if let Some((name, inode)) = &self.set {
            to.insert(name.clone(), *inode);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Directory {
    pub(super) live: BTreeMap<String, InodeId>,
    pub(super) durable: BTreeMap<String, InodeId>,
    pub(super) pending: Vec<NameChange>,
}

impl Directory {
    fn change(&mut self, unset: Option<&str>, set: Option<(&str, InodeId)>) {
        let change =
            NameChange { unset: unset.map(str::to_owned), set: set.map(|(name, inode)| (name.to_owned(), inode)) };
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        if !self.pending.is_empty() {
            self.durable.clone_from(&self.live);
            self.pending.clear();
        }
    }
}

#[derive(Debug)]
pub(super) enum Inode {
    File(Content),
    Dir(Directory),
}

/// All files and directories. Inodes are never freed: an unsynced removal may turn out not to have happened.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) inodes: Vec<Inode>,
}

impl Tree {
    pub(super) fn new() -> Self {
        Self { inodes: vec![Inode::Dir(Directory::default())] }
    }

    fn dir(&self, inode: InodeId) -> io::Result<&Directory> {
        match &self.inodes[inode] {
            Inode::Dir(dir) => Ok(dir),
            Inode::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn dir_mut(&mut self, inode: InodeId) -> io::Result<&mut Directory> {
        match &mut self.inodes[inode] {
            Inode::Dir(dir) => Ok(dir),
            Inode::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn resolve(&self, path: &Path) -> io::Result<InodeId> {
        let mut at = ROOT;
        for part in path.components() {
            match part {
                Component::Normal(name) => {
                    let name = name.to_str().ok_or(ErrorKind::InvalidInput)?;
                    at = *self.dir(at)?.live.get(name).ok_or(ErrorKind::NotFound)?;
                }
                Component::RootDir | Component::CurDir => {}
                Component::ParentDir | Component::Prefix(_) => return Err(ErrorKind::InvalidInput.into()),
            }
        }
        Ok(at)
    }

    fn parent_and_name<'p>(&self, path: &'p Path) -> io::Result<(InodeId, &'p str)> {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(ErrorKind::InvalidInput)?;
        let parent = self.resolve(path.parent().unwrap_or(Path::new("")))?;
        self.dir(parent)?;
        Ok((parent, name))
    }

    fn create(&mut self, path: &Path, inode: Inode) -> io::Result<()> {
        let (parent, name) = self.parent_and_name(path)?;
        if self.dir(parent)?.live.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let id = self.inodes.len();
        self.inodes.push(inode);
        self.dir_mut(parent)?.change(None, Some((name, id)));
        Ok(())
    }

    pub(super) fn create_file(&mut self, path: &Path) -> io::Result<()> {
        self.create(path, Inode::File(Content::default()))
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        self.create(path, Inode::Dir(Directory::default()))
    }

    pub(super) fn lookup_file(&self, path: &Path) -> io::Result<InodeId> {
        let inode = self.resolve(path)?;
        match &self.inodes[inode] {
            Inode::File(_) => Ok(inode),
            Inode::Dir(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn content_mut(&mut self, inode: InodeId) -> &mut Content {
        match &mut self.inodes[inode] {
            Inode::File(content) => content,
            Inode::Dir(_) => panic!("inode {inode} is a directory, and a handle holds it as a file"),
        }
    }

    pub(super) fn file_mut(&mut self, path: &Path) -> io::Result<&mut Content> {
        let inode = self.lookup_file(path)?;
        Ok(self.content_mut(inode))
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let inode = self.resolve(from)?;
        let (old_parent, old_name) = self.parent_and_name(from)?;
        let (new_parent, new_name) = self.parent_and_name(to)?;
        if let Some(&target) = self.dir(new_parent)?.live.get(new_name) {
            let empty_dir = matches!(&self.inodes[target], Inode::Dir(dir) if dir.live.is_empty());
            match (&self.inodes[inode], &self.inodes[target]) {
                (Inode::File(_), Inode::Dir(_)) => return Err(ErrorKind::IsADirectory.into()),
                (Inode::Dir(_), Inode::File(_)) => return Err(ErrorKind::NotADirectory.into()),
                (Inode::Dir(_), Inode::Dir(_)) if !empty_dir => return Err(ErrorKind::DirectoryNotEmpty.into()),
                _ => {}
            }
        }
        if old_parent == new_parent {
            self.dir_mut(old_parent)?.change(Some(old_name), Some((new_name, inode)));
        } else {
            self.dir_mut(old_parent)?.change(Some(old_name), None);
            self.dir_mut(new_parent)?.change(None, Some((new_name, inode)));
        }
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.lookup_file(path)?;
        let (parent, name) = self.parent_and_name(path)?;
        self.dir_mut(parent)?.change(Some(name), None);
        Ok(())
    }

    pub(super) fn remove_empty_dir(&mut self, path: &Path) -> io::Result<()> {
        if !self.dir(self.resolve(path)?)?.live.is_empty() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        let (parent, name) = self.parent_and_name(path)?;
        self.dir_mut(parent)?.change(Some(name), None);
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let dir = self.dir(self.resolve(path)?)?;
        let entry = |(name, &inode): (&String, &InodeId)| Entry {
            name: name.clone(),
            is_dir: matches!(self.inodes[inode], Inode::Dir(_)),
        };
        Ok(dir.live.iter().map(entry).collect())
    }

    pub(super) fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        match self.resolve(path) {
            Ok(inode) => Ok(Some(match &self.inodes[inode] {
                Inode::File(content) => Metadata { is_dir: false, len: content.len() },
                Inode::Dir(_) => Metadata { is_dir: true, len: 0 },
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        match &self.inodes[self.lookup_file(path)?] {
            Inode::File(content) => Ok(content.modified_ms),
            Inode::Dir(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.resolve(path)?;
        self.dir_mut(inode)?.sync();
        Ok(())
    }

    pub(super) fn sync_all(&mut self) {
        for inode in &mut self.inodes {
            match inode {
                Inode::File(content) => content.sync(),
                Inode::Dir(dir) => dir.sync(),
            }
        }
    }
}
