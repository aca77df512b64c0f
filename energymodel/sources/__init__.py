"""The two source documents, literally.

Each formula of "Training Dynamics: Energy-Information Tradeoffs in Large Language Models" and of "Engineering
Optimization of Training Infrastructure Energy-Performance Tradeoff" is kept here exactly as written, with a verdict.
The model uses none of them: the corrected forms are in `physics`, `performance`, `learning`, `economics` and `system`.
`docs/sources.md` maps one to the other; the tests of `tests/sources` show where each pair agrees.
"""

from energymodel.sources.engineering_optimization import *  # noqa: F403
from energymodel.sources.performance_models import *  # noqa: F403
from energymodel.sources.training_dynamics import *  # noqa: F403
