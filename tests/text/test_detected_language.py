import os
import subprocess
import sys

import langdetect
import pytest
from langdetect.detector_factory import PROFILES_DIRECTORY

from heavydistill.text.languages import CODES, is_in

TEXTS = {
    "en": "The old bridge was closed for repairs, so everyone had to walk around the lake instead.",
    "de": "Die alte Brücke war wegen Bauarbeiten gesperrt, also mussten alle um den See gehen.",
    "fr": "Le vieux pont était fermé pour travaux, et tout le monde devait faire le tour du lac.",
    "ru": "Старый мост был закрыт на ремонт, поэтому всем пришлось идти вокруг озера пешком.",
    "hi": "पुराना पुल मरम्मत के लिए बंद था, इसलिए सभी को झील के चारों ओर पैदल जाना पड़ा और देर हो गई।",
    "zh": "旧桥因维修而关闭，所以大家只好绕着湖走。天气很好，没有人抱怨，孩子们在路上唱歌。"
    "晚上他们回到家里，吃了晚饭，谈论白天发生的事情，然后很早就去睡觉了，因为第二天还要上学。",
}
DETECT = f"""
from heavydistill.text.languages import factory
for text in {["ocean crest", "etchings", "a b c", "Oui bien", *TEXTS.values()]!r}:
    detector = factory().create()
    detector.append(text)
    print(detector.get_probabilities())
"""


@pytest.mark.parametrize("language", TEXTS)
def test_a_text_is_in_its_language_and_in_no_other_in_capitals_too(language):
    for text in (TEXTS[language], TEXTS[language].upper()):
        answers = {other: is_in(text, other) for other in TEXTS}
        assert answers == {other: other == language for other in TEXTS}


@pytest.mark.parametrize(
    "text", ["", "1234 + 5", "🙂🙂", "etchings.", "x", "https://example.com/ab"]
)
def test_what_tells_no_language_is_in_none_for_sure(text):
    assert is_in(text, "en") is None


def test_links_tell_nothing_about_the_language():
    links = "https://example.com/die/alte/bruecke/war/wegen/bauarbeiten/gesperrt " * 20
    assert is_in(links + TEXTS["fr"], "fr") is True


def test_every_profile_has_its_code():
    assert {code for codes in CODES.values() for code in codes} == {
        name for name in os.listdir(PROFILES_DIRECTORY) if not name.startswith(("_", "."))
    }
    assert CODES["zh"] == {"zh-cn", "zh-tw"}


def test_the_settings_of_others_are_neither_used_nor_changed():
    for seed in (None, 5):
        langdetect.DetectorFactory.seed = seed
        try:
            assert is_in(TEXTS["de"], "de") is True
            assert langdetect.DetectorFactory.seed is seed
        finally:
            langdetect.DetectorFactory.seed = None


def test_the_same_text_gets_the_same_answer_in_every_process():
    said = {
        subprocess.run(
            [sys.executable, "-c", DETECT],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(said) == 1 and b"en:" in said.pop()
