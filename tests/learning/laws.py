"""Laws of loss and critical batch that tests share [docs/physics.md B1]."""

from energymodel.learning.critical_batch import KaplanCriticalBatch, PowerCriticalBatch
from energymodel.learning.loss_law import ChinchillaLaw
from energymodel.numerics import as_real

LAW = ChinchillaLaw(*map(as_real, (1.8172, 482.01, 0.3478, 2085.43, 0.3658)))  # Besiroglu et al. 2024
BERGSMA = PowerCriticalBatch(*map(as_real, (2048 * 0.0471, 0.462)))
KAPLAN = KaplanCriticalBatch(*map(as_real, (2.1e8, 1 / 0.21)))
