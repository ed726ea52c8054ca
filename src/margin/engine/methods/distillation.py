r"""Distillation (Hinton, Vinyals and Dean, 2015): descent on a teacher's soft answers and on labels.

.. math:: s\, T^2\, \mathrm{KL}(\mathrm{softmax}(F / T) \,\|\, \mathrm{softmax}(G / T)) + (1 - s)\, \ell
"""

import torch
from torch import Generator, Tensor, nn

from margin.core.tasks import Task
from margin.core.types import Batch, ClassScores, Objective
from margin.engine.evaluation import capture, eval_mode, expand_weight
from margin.engine.loop import GradientUpdate, Step, descent
from margin.nn.losses import check_temperature, distillation_excess
from margin.nn.preprocessed import dtype_of


def distillation(
    objective: Objective,
    descend: GradientUpdate,
    task: Task,
    teacher: nn.Module,
    *,
    temperature: float = 4.0,
    share: float = 0.9,
) -> Step:
    """One optimizer step on a trained model's tempered class probabilities and on the labels.

    Args:
        objective: The loss of each term.
        descend: How the loss moves the optimizer.
        task: How the student's and the teacher's outputs are read.
        teacher: Takes the same inputs and tells the same classes; asked in evaluation mode.
        temperature: T > 0 by which both logits are divided.
        share: Share s in [0, 1] of the teacher; the labels have the rest.

    Raises:
        ValueError: An option is out of range, or the task states no probability of classes; at the first
            step, the teacher takes other inputs or tells other classes than the student.

    Reference: Hinton, Vinyals and Dean (2015), "Distilling the knowledge in a neural network", Section 2.
    """
    return descent(distilled(objective, task, teacher, temperature=temperature, share=share), descend)


def distilled(
    objective: Objective, task: Task, teacher: nn.Module, *, temperature: float, share: float
) -> Objective:
    """The objective s T^2 KL(p_T || q_T) + (1 - s) l: minimal where the student's logits are the teacher's.

    KL differs from the cross-entropy by the entropy of p_T, which is no function of the student: the gradient
    is the cross-entropy's, and the value is 0 where nothing is left to learn. The student is asked once, by
    the objective; the teacher is asked at the inputs that the student saw.

    Args:
        objective: The loss l of each term, of one call of the model.
        task: How outputs are read.
        teacher: The model that is learned from.
        temperature: T > 0.
        share: s in [0, 1].

    Raises:
        ValueError: As :func:`distillation`.
    """
    check_temperature(temperature)
    if not 0 <= share <= 1:
        raise ValueError(f"share must be in [0, 1]: got {share}")
    logits_of = task.classes
    if logits_of is None or task.probabilities is None:
        raise ValueError(f"distillation needs class probabilities: the task {task.name!r} states none")

    def both(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        with capture([model]) as calls:
            losses = objective(model, batch, generator)
        if len(calls) != 1:
            raise ValueError(
                f"distillation needs an objective that asks the model once: it asked {len(calls)} times"
            )
        inputs, outputs = calls[0].args, calls[0].output
        student = logits_of(outputs)
        # in half precision KL would be rounded away
        student = student.to(torch.promote_types(student.dtype, torch.float32))
        answered = answers(teacher, inputs, task).to(student)
        if answered.shape != student.shape:
            raise ValueError(
                "the teacher must tell the student's classes: "
                f"got {answered.shape[-1]} of the teacher, {student.shape[-1]} of the student"
            )
        excess = temperature**2 * distillation_excess(student, answered, temperature)
        return share * expand_weight(losses, excess) + (1 - share) * losses

    return both


def answers(teacher: nn.Module, inputs: tuple[Tensor, ...], task: Task) -> ClassScores:
    """The teacher's logits, asked in its own type and in evaluation mode, without a trace.

    Raises:
        ValueError: It does not take these inputs, or answers with something else.
    """
    dtype = dtype_of(teacher)
    own = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    with torch.no_grad(), eval_mode(teacher):
        try:
            outputs = teacher(*own)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # what torch raises where shapes do not fit
            shapes = ", ".join(str(tuple(x.shape[1:])) for x in own)
            reason = str(error).splitlines()[0]
            raise ValueError(f"the teacher must take inputs of shape {shapes}: {reason}") from error
    if task.classes is None or not isinstance(outputs, Tensor):
        raise ValueError(f"the teacher must answer with class logits: got {type(outputs).__name__}")
    return task.classes(outputs)
