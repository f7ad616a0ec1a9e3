//! What other users may do with files and directories, on a real file system.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use berth_files::{NewFile, create, loose_mode, make_directory};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_directory_is_made_closed_and_an_open_one_is_closed_with_all_below_it() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("a/b");
    make_directory(&data).unwrap();
    assert_eq!((mode(&data), mode(&home.path().join("a"))), (0o700, 0o700));

    let outside = home.path().join("outside");
    fs::write(&outside, "").unwrap();
    set_mode(&outside, 0o644);
    fs::create_dir_all(data.join("slots/old")).unwrap();
    let files = ["tokens.json", "slots/1.json", "slots/old/2.json"].map(|name| data.join(name));
    for file in &files {
        fs::write(file, "--api-key").unwrap();
        set_mode(file, 0o644);
    }
    let directories = [data.clone(), data.join("slots"), data.join("slots/old")];
    directories.iter().for_each(|directory| set_mode(directory, 0o755));
    symlink(&outside, data.join("link")).unwrap();
    make_directory(&data).unwrap();
    for directory in &directories {
        assert_eq!(mode(directory), 0o700, "{}", directory.display());
    }
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    assert_eq!(mode(&outside), 0o644, "a link leads out of the directory");
}

#[test]
fn a_directory_that_is_meant_to_be_shared_is_refused_and_left_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let shared = home.path().join("shared");
    fs::create_dir(&shared).unwrap();
    set_mode(&shared, 0o1777);
    let error = make_directory(&shared).unwrap_err();
    assert!(error.to_string().contains("1777") && error.to_string().contains("of its own"), "{error}");
    assert_eq!(mode(&shared), 0o1777);
    assert!(make_directory(Path::new("/")).is_err());
}

#[test]
fn a_file_is_private_also_where_an_open_one_was_left_over() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("record.tmp");
    fs::write(&path, "left over").unwrap();
    set_mode(&path, 0o644);
    drop(create(&path).unwrap());
    assert_eq!((mode(&path), fs::read(&path).unwrap().len()), (0o600, 0));
}

#[test]
fn a_new_file_is_private_whole_and_replaces_nothing_unasked() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("token");
    drop(NewFile::prepare(&path, false).unwrap());
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "nothing is left of one that was dropped");
    NewFile::prepare(&path, false).unwrap().keep(b"one").unwrap();
    assert_eq!((mode(&path), fs::read_to_string(&path).unwrap().as_str()), (0o600, "one"));
    assert_eq!(NewFile::prepare(&path, false).unwrap_err().kind(), ErrorKind::AlreadyExists);

    set_mode(&path, 0o644);
    NewFile::prepare(&path, true).unwrap().keep(b"two").unwrap();
    assert_eq!((mode(&path), fs::read_to_string(&path).unwrap().as_str()), (0o600, "two"));

    // Somebody makes it in between.
    let other = home.path().join("other");
    let prepared = NewFile::prepare(&other, false).unwrap();
    fs::write(&other, "theirs").unwrap();
    assert_eq!(prepared.keep(b"ours").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(&other).unwrap(), "theirs");

    let link = home.path().join("link");
    symlink(&path, &link).unwrap();
    for special in [link.as_path(), home.path(), Path::new("/dev/null"), Path::new("..")] {
        for replace in [false, true] {
            assert!(NewFile::prepare(special, replace).is_err(), "{} {replace}", special.display());
        }
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 3, "token, other, link");
}

#[test]
fn a_file_is_loose_if_all_users_can_read_it_or_a_group_can_write_it() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("key.pem");
    assert_eq!(loose_mode(&path), None);
    fs::write(&path, "").unwrap();
    for fine in [0o600, 0o400, 0o640, 0o440] {
        set_mode(&path, fine);
        assert_eq!(loose_mode(&path), None, "{fine:o}");
    }
    for loose in [0o644, 0o604, 0o660, 0o602, 0o444] {
        set_mode(&path, loose);
        assert_eq!(loose_mode(&path), Some(loose), "{loose:o}");
    }
}
