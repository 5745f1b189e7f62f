"""Whether a checkpoint is asked about sets as the student that they were made for would be.

A set names its student, and not where that is. If it is not found, the checkpoint stands for it,
which came of it, as long as its own chat template is the one that the sets were made for.
"""

from __future__ import annotations

from pathlib import Path

from heavydistill.chat.student import Student, lost_student
from heavydistill.chat.template import Chat, own_template
from heavydistill.config.sets import RefilterConfig
from heavydistill.curate.redeliberation.asking import Asking
from heavydistill.errors import TeacherError
from heavydistill.store.sets.folder import CHAT_TEMPLATE, Manifest


def student_of(manifest: Manifest, config: RefilterConfig) -> Student:
    """The student of the sets, or the checkpoint in its place.

    Raises:
        TeacherError: There is none under the name that the configuration gives.
        ConfigError: There is none under the name that the sets give, and the checkpoint has
            another template.
    """
    name = config.student or manifest.student.name
    try:
        return Student(name, _mended(config))
    except TeacherError as error:
        if config.student:
            raise
        if Path(config.checkpoint).is_dir():
            child = Student(config.checkpoint)
            if child.template_sha256 == manifest.student.template_sha256:
                return child
        raise lost_student(name, error) from error


def differences(
    manifest: Manifest, config: RefilterConfig, asking: Asking, student: Student
) -> list[str]:
    """What the user should know: who stands for the student, and which template is another one."""
    told = []
    wanted = config.student or manifest.student.name
    if student.name != wanted:
        told.append(
            f"The student of the sets, {wanted}, is not found here: {asking.model.name} stands for "
            "it, which has its chat template.\nIf it is no child of it, give --student FOLDER."
        )
    return told + _other_template(config, asking, student)


def _mended(config: RefilterConfig) -> Path | None:
    """The template of the sets, if it is not the student's own."""
    file = Path(config.sets) / CHAT_TEMPLATE
    return file if file.is_file() else None


def _other_template(config: RefilterConfig, asking: Asking, student: Student) -> list[str]:
    """What is to be said if the checkpoint is not asked as the sets say, or may not be."""
    mended, name = _mended(config), asking.model.name
    if asking.model.kind == "endpoint":
        if not mended:
            return []
        return [f"The server must ask {name} in the chat template of the sets, {mended}."]
    from transformers import AutoTokenizer

    template = own_template(AutoTokenizer.from_pretrained(asking.model.model))
    probe = [{"role": "user", "content": "?"}]
    theirs = Chat(student.chat.tokenizer, student.chat.stops, template)
    if theirs.render(probe, opens=True) == student.chat.render(probe, opens=True):
        return []
    fix = f"Copy {mended} into its folder" if mended else "Take one of that student"
    return [
        f"{name} puts its prompts in another chat template than the one that the sets are made "
        f"for, that of {student.name}, so it is not asked what it was trained on.\n{fix}."
    ]
