"""The theorems of the paper, and those of others, as numbers: bounds on W2, step sizes and steps that they give."""

from .bounds import Bound, Plan
from .contraction import Contraction, DissipativityCheck, check_dissipativity, measured_contraction
from .estimates import estimated
from .ito import DiffusionConstants, non_convex_constants, theorem_one_em_ito, theorem_one_srk_id
from .known import dalalyan_karagulyan, dalalyan_karagulyan_hessian, durmus_moulines
from .langevin import theorem_one_em, theorem_one_srk_ld
from .master import LocalDeviation, theorem_one
from .smoothness import Smoothness, certified
from .underdamped import cheng, cheng_stated, shen_lee, theorem_one_cheng, theorem_one_midpoint

__all__ = [
    "Bound",
    "Contraction",
    "DiffusionConstants",
    "DissipativityCheck",
    "LocalDeviation",
    "Plan",
    "Smoothness",
    "certified",
    "check_dissipativity",
    "cheng",
    "cheng_stated",
    "dalalyan_karagulyan",
    "dalalyan_karagulyan_hessian",
    "durmus_moulines",
    "estimated",
    "measured_contraction",
    "non_convex_constants",
    "shen_lee",
    "theorem_one",
    "theorem_one_cheng",
    "theorem_one_em",
    "theorem_one_em_ito",
    "theorem_one_midpoint",
    "theorem_one_srk_id",
    "theorem_one_srk_ld",
]
