//! Who may depend on whom: rooms stand above what they use, and nothing below knows what is above.
//!
//! The table is the one of ARCHITECTURE.md. A crate that is not in it must be entered there first.

use super::Problem;
use crate::metadata::{Metadata, Package};

/// What a crate of the workspace may use outside its tests.
struct Layer {
    name: &'static str,
    /// Crates of the workspace that it may depend on.
    uses: &'static [&'static str],
    /// Crates from elsewhere that it may depend on; `None` = any.
    foreign: Option<&'static [&'static str]>,
}

const fn layer(
    name: &'static str,
    uses: &'static [&'static str],
    foreign: Option<&'static [&'static str]>,
) -> Layer {
    Layer { name, uses, foreign }
}

const ARENA: &str = "vramwise-arena";
const CUDA: &str = "vramwise-cuda";
const TYPES: &str = "vramwise-types";
const PICKLE: &str = "vramwise-pickle";
const TRACE: &str = "vramwise-trace";
const MODEL: &str = "vramwise-model";
const REPLAY: &str = "vramwise-replay";
const TUNE: &str = "vramwise-tune";
const ANALYZE: &str = "vramwise-analyze";
const FILES: &str = "vramwise-files";
const PROFILE: &str = "vramwise-profile";
const REHEARSE: &str = "vramwise-rehearse";
const CLI: &str = "vramwise-cli";
const TESTKIT: &str = "vramwise-testkit";
const WORKSPACES: &str = "vramwise-workspaces";
const VALUES: &str = "vramwise-values";

/// Bottom-up. `pickle`, `types` and `model` are pure decisions; what they may use is listed by name.
const LAYERS: &[Layer] = &[
    layer(TYPES, &[], Some(&[])),
    layer(PICKLE, &[], Some(&[])),
    layer(WORKSPACES, &[], None),
    layer(VALUES, &[], None),
    layer(ARENA, &[], Some(&[])),
    layer(CUDA, &[ARENA], None),
    layer("vramwise-allocator", &[TYPES, ARENA, CUDA], None),
    layer("vramwise-probe", &[WORKSPACES, VALUES], None),
    layer("vramwise-nvrtc", &[], None),
    layer(TRACE, &[TYPES, PICKLE], None),
    layer(MODEL, &[TYPES], Some(&["thiserror"])),
    layer("vramwise-emulator", &[MODEL, WORKSPACES, VALUES], None),
    layer(REPLAY, &[TYPES, TRACE, MODEL, ARENA], None),
    layer(TUNE, &[TYPES, TRACE, MODEL, REPLAY], None),
    layer(ANALYZE, &[TYPES, TRACE, MODEL, REPLAY, TUNE], None),
    layer(FILES, &[TYPES, TRACE, REPLAY, ANALYZE], None),
    layer(PROFILE, &[], None),
    layer(REHEARSE, &[TYPES, TRACE, MODEL, REPLAY, ANALYZE, PROFILE, WORKSPACES, VALUES], None),
    layer(CLI, &[TYPES, TRACE, MODEL, REPLAY, TUNE, ANALYZE, FILES, PROFILE, REHEARSE], None),
    layer("vramwise-python", &[TYPES, TRACE, MODEL, FILES, CLI], None),
    layer(TESTKIT, &[TYPES, MODEL], None),
    layer("vramwise-fuzz", &[TYPES, PICKLE, TRACE, MODEL, REPLAY, ANALYZE, TESTKIT], None),
    layer("vramwise-bench", &[TYPES, PICKLE, TRACE, MODEL, REPLAY, TUNE, ANALYZE, TESTKIT], None),
    layer("xtask", &[], None),
];

pub(super) fn check(metadata: &Metadata) -> Vec<Problem> {
    let members = metadata.members();
    let names: Vec<&str> = members.iter().map(|p| p.name.as_str()).collect();
    members.iter().flat_map(|package| check_package(package, &names)).collect()
}

fn check_package(package: &Package, members: &[&str]) -> Vec<Problem> {
    let place = format!("{} ({})", package.name, package.manifest_path.display());
    let Some(layer) = LAYERS.iter().find(|l| l.name == package.name) else {
        return vec![Problem::file(&place, "is in no layer; enter it in xtask/src/tidy/layers.rs")];
    };
    let mut problems = Vec::new();
    for dependency in &package.dependencies {
        let name = dependency.name.as_str();
        let is_dev = dependency.kind.as_deref() == Some("dev");
        let ours = members.contains(&name);
        if is_dev && (name == TESTKIT || !ours || layer.name == TESTKIT) {
            continue;
        }
        let allowed = match layer.foreign {
            _ if ours => layer.uses.contains(&name),
            Some(foreign) => foreign.contains(&name),
            None => true,
        };
        if !allowed {
            problems.push(Problem::file(&place, format!("may not depend on {name}")));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependencies: Vec<_> = dependencies
            .iter()
            .map(|(name, kind)| serde_json::json!({"name": name, "kind": kind}))
            .collect();
        let value = serde_json::json!({
            "name": name, "version": "0.1.0", "id": name, "license": null,
            "manifest_path": "Cargo.toml", "dependencies": dependencies,
        });
        serde_json::from_value(value).expect("the fields of a package")
    }

    #[test]
    fn the_model_must_not_know_of_files() {
        let members = [MODEL, TRACE, TESTKIT];
        let told = |dependencies: &[(&str, Option<&str>)]| {
            check_package(&package(MODEL, dependencies), &members).len()
        };
        assert_eq!(told(&[(TRACE, None)]), 1);
        assert_eq!(told(&[(TRACE, Some("dev"))]), 1);
        assert_eq!(told(&[("libc", None)]), 1);
        assert_eq!(told(&[(TESTKIT, None)]), 1);
        assert_eq!(told(&[(TESTKIT, Some("dev")), ("proptest", Some("dev"))]), 0);
    }

    #[test]
    fn a_crate_in_no_layer_is_told() {
        assert_eq!(check_package(&package("vramwise-attic", &[]), &[]).len(), 1);
    }

    #[test]
    fn a_layer_uses_only_what_stands_below_it() {
        for (i, layer) in LAYERS.iter().enumerate() {
            for used in layer.uses {
                assert!(LAYERS[..i].iter().any(|l| l.name == *used), "{} {used}", layer.name);
            }
        }
    }
}
