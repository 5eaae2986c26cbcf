"""Damage: a flipped bit, a cut file, a file that is gone; every one is named."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from estimax import export
from estimax.core.errors import BundleError
from estimax.export.manifest import MANIFEST, BundleFiles, write_manifest

sys.path.insert(0, str(Path(__file__).parent))
import servables  # lies beside this file


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    note = folder / "note.txt"
    note.write_text("for people")
    return export.write_bundle(
        servables.wide_servable(), folder, assets_extra={"a/note.txt": note}
    )


@pytest.fixture
def copy(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / whole.name))


def files_of(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file())


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_in_any_file_is_found_and_named(copy):
    checked = 0
    for path in files_of(copy):
        original = path.read_bytes()
        for position in (0, len(original) // 2, len(original) - 2):
            flip(path, position)
            with pytest.raises(BundleError, match=re.escape(str(path))):
                export.load(copy)
            path.write_bytes(original)
            checked += 1
    assert checked == 3 * len(files_of(copy)) >= 3 * 12
    export.load(copy)


def test_a_cut_file_is_found_and_named(copy):
    for path in files_of(copy):
        original = path.read_bytes()
        path.write_bytes(original[: len(original) // 2])
        with pytest.raises(BundleError, match=re.escape(str(path))):
            export.load(copy, verify=False)
        path.write_bytes(original)


def test_a_missing_file_is_named(copy):
    for path in files_of(copy):
        original = path.read_bytes()
        path.unlink()
        named = copy if path.name == MANIFEST else path
        with pytest.raises(BundleError, match=re.escape(str(named))):
            export.load(copy, verify=False)
        path.write_bytes(original)


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, "[]", "\0"])
def test_a_manifest_of_other_json_is_named(copy, text):
    (copy / MANIFEST).write_text(text)
    with pytest.raises(BundleError, match=re.escape(str(copy / MANIFEST))):
        export.load(copy)


def test_without_verify_parsed_files_are_still_checked(copy):
    flip(copy / "signatures.json", 40)
    with pytest.raises(BundleError, match=r"signatures\.json: expected sha256"):
        export.load(copy, verify=False)


def test_a_newer_format_says_to_update(copy):
    rewrite(copy, format_version=99)
    with pytest.raises(BundleError, match="written by a newer estimax"):
        export.load(copy)


def test_names_that_lead_out_of_the_bundle_are_refused(copy):
    with pytest.raises(BundleError, match="is not a relative path inside"):
        BundleFiles.open(copy).read("../outside")


def test_the_self_test_notices_other_answers(copy):
    path = copy / "selftest.json"
    record = json.loads(path.read_text())
    record["answers"]["predict"]["logits"]["values"][0] += 0.01
    path.write_text(json.dumps(record))
    rewrite(copy)
    export.load(copy)
    with pytest.raises(BundleError, match="self-test of signature 'predict', output"):
        export.load(copy, self_test=True)


def test_content_of_another_kind_is_refused(copy):
    (copy / "signatures.json").write_text('{"predict": {}}')
    rewrite(copy)
    with pytest.raises(BundleError, match="expected the files of an estimax bundle"):
        export.load(copy)


def test_weights_of_another_model_are_refused(copy, tmp_path):
    other = export.write_bundle(servables.numeric_servable(), tmp_path / "other")
    shutil.copy(other / "weights.safetensors", copy / "weights.safetensors")
    rewrite(copy)
    with pytest.raises(BundleError, match="expected weight 'city'"):
        export.load(copy)


def rewrite(folder, **changes):
    """Make the manifest agree with the files again, as a forger would."""
    path = folder / MANIFEST
    about = json.loads(path.read_text())
    path.unlink()
    rest = {k: v for k, v in about.items() if k not in ("files", "checksum")}
    write_manifest(folder, {**rest, **changes})
