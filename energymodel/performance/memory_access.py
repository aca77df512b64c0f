"""Memory bandwidth of an access pattern: lines, coalescing, prefetching, concurrency, sharing.

Shared arguments: `line_size` L and `run_length` r, contiguous bytes per access, positive, `overhead` o, cost of a
transaction in bytes, `element_size` w, `sector_size` q, smallest transfer, 32 B on NVIDIA devices, and `in_flight` N,
bytes in flight, positive [B]; `stride` s, at least 1 [element]; `latency` l without prefetching [s]; of misses, the
share that is prefetched, `coverage` c, and of those the share that arrives before its use, `timeliness` t; `accuracy`
a, share of prefetches that are used, positive [1] [Srinath et al. 2007].
"""

import abc

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, p_norm, real, share
from energymodel.ranges import ABOVE_ZERO, AT_LEAST_ONE, SHARE_ABOVE_ZERO, Range


def line_efficiency(line_size: Numeric, run_length: Numeric, overhead: Numeric) -> Values:
    """Useful share of the traffic, `eta = 1 / [(1 + L / (2 r)) (1 + o / L)]` [derivation: half a line wasted per run].

    Long lines fetch unused bytes at the ends of a run; short ones pay the overhead of a transaction more often
    [Smith 1987]. Valid for runs that start at a random place in a line.

    **Returns:** efficiency [1], in (0, 1].
    """
    L, r = map(jnp.asarray, (line_size, run_length))
    return 1.0 / ((1.0 + L / (2.0 * r)) * (1.0 + overhead / L))


def coalescing_efficiency(stride: Numeric, element_size: Numeric, sector_size: Numeric) -> Values:
    """Useful bytes per byte of the sectors touched [1], `eta = max(1 / s, w / q)`.

    Adjacent threads read elements that lie `s` elements apart; beyond `q / w` each element has a sector of its own
    [NVIDIA 2024, CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"].
    """
    return jnp.maximum(1.0 / jnp.asarray(stride), jnp.asarray(element_size) / sector_size)


def prefetch_latency(latency: Numeric, coverage: Numeric, timeliness: Numeric) -> Values:
    """Latency with a prefetcher [s], `l' = l (1 - c t)` [derivation: expectation; terms of Srinath et al. 2007]."""
    return jnp.asarray(latency) * (1.0 - jnp.asarray(coverage) * timeliness)


def prefetch_traffic(coverage: Numeric, accuracy: Numeric) -> Values:
    """Growth of traffic by useless prefetches [1], `g = 1 + c (1 / a - 1)` [derivation: c / a fetched for c used]."""
    return 1.0 + jnp.asarray(coverage) * (1.0 / jnp.asarray(accuracy) - 1.0)


def concurrent_bandwidth(bandwidth: Numeric, in_flight: Numeric, latency: Numeric, exponent: Numeric = 4.0) -> Values:
    """Bandwidth reached with limited concurrency [B/s], `bw' = [bw^-p + (N / l)^-p]^(-1/p)` [Little 1961].

    The law itself is `min(bw, N / l)`; p = 4 (docs/physics.md E) falls below it by at most 16 % (`1 - 2^(-1/p)`).

    **Arguments:**

    - `bandwidth`: bw, peak of the path [B/s], positive.
    - `in_flight`: N, bytes in flight [B], positive.
    - `latency`: l [s].
    - `exponent`: p [1]; p -> infinity is the minimum.
    """
    return 1.0 / p_norm(exponent, 1.0 / jnp.asarray(bandwidth), jnp.asarray(latency) / in_flight)


class AbstractMemoryAccess(eqx.Module):
    """Access of kernels to the memory of a chip: bytes fetched per byte used, and rates."""

    @abc.abstractmethod
    def traffic(self) -> Values:
        """Bytes that move per byte that kernels use, over those of the streams that were measured [1]."""

    @abc.abstractmethod
    def bandwidth(self, sustained: Numeric) -> Values:
        """Useful bytes per time [B/s], where the streams that were measured reach `sustained` [B/s]."""

    def link_rate(self, rate: Numeric, sustained: Numeric) -> Values:
        """Bytes that collectives send per time [B/s] over links with such a `rate` [B/s]: by default just that.

        What they read and write is in the rate that was measured.
        """
        del sustained
        return jnp.asarray(rate)


class MeasuredAccess(AbstractMemoryAccess):
    """Kernels stream as those whose share of the bandwidth was measured (`memory_efficiency`)."""

    def traffic(self) -> Values:
        """One."""
        return jnp.asarray(1.0)

    def bandwidth(self, sustained: Numeric) -> Values:
        """That of the measured streams."""
        return jnp.asarray(sustained)


class StatedAccess(AbstractMemoryAccess):
    """A pattern of access that is stated, relative to the streams of the chip's measured share of the bandwidth.

    Those have adjacent elements and no prefetches; with them, and the measured lines, runs and bytes in flight, nothing
    changes.
    """

    line_size: Real = real("B", doc="smallest transfer of the memory", within=ABOVE_ZERO)
    run_length: Real = real("B", doc="contiguous bytes that a kernel uses", within=ABOVE_ZERO)
    stride: Real = real("1", doc="distance of what adjacent threads read, in elements", within=AT_LEAST_ONE)
    in_flight: Real = real("B", doc="requested and not yet arrived, of the whole chip", within=ABOVE_ZERO)
    prefetch_coverage: Real = share(doc="share of what is used that is prefetched")
    measured_line_size: Real = real("B", doc="of the streams that were measured", within=ABOVE_ZERO)
    measured_run_length: Real = real("B", doc="of the streams that were measured", within=ABOVE_ZERO)
    measured_in_flight: Real = real("B", doc="of the streams that were measured", within=ABOVE_ZERO)
    overhead: Real = real("B", doc="what a transaction costs, in bytes that the bus could have carried")
    element_size: Real = real("B", within=ABOVE_ZERO)
    sector_size: Real = real("B", doc="smallest part of a line that is fetched for threads", within=ABOVE_ZERO)
    latency: Real = real("s", doc="of the loaded memory, without prefetching")
    prefetch_accuracy: Real = real("1", doc="share of prefetches that are used", within=SHARE_ABOVE_ZERO)
    prefetch_timeliness: Real = share(doc="share of these that arrive before their use")

    def traffic(self) -> Values:
        """Bytes that move per byte used, over those of measured streams, `g eta_0(L_0, r_0) / [eta_0(L, r) eta(s)]`.

        Ends of lines, strides and useless prefetches move more (`line_efficiency` eta_0 without overhead,
        `coalescing_efficiency`, `prefetch_traffic` g).
        """
        without_overhead = line_efficiency(self.line_size, self.run_length, 0.0)
        own = line_efficiency(self.measured_line_size, self.measured_run_length, 0.0)
        coalesced = coalescing_efficiency(self.stride, self.element_size, self.sector_size)
        return own / (without_overhead * coalesced) * prefetch_traffic(self.prefetch_coverage, self.prefetch_accuracy)

    def bandwidth(self, sustained: Numeric) -> Values:
        """See `AbstractMemoryAccess.bandwidth`: `concurrent_bandwidth` with the latency that prefetches leave.

        A transaction takes `1 + o / L` of the time of a line, and what moves unused takes its own.
        """
        seen = prefetch_latency(self.latency, self.prefetch_coverage, self.prefetch_timeliness)
        reached = concurrent_bandwidth(sustained, self.in_flight, seen)
        reached = reached / concurrent_bandwidth(sustained, self.measured_in_flight, self.latency)
        own = 1.0 + jnp.asarray(self.overhead) / self.measured_line_size
        return sustained * reached * own / ((1.0 + self.overhead / jnp.asarray(self.line_size)) * self.traffic())


class DividedAccess(AbstractMemoryAccess):
    """A fixed share of the bandwidth for collectives, the rest for kernels, in place of what each takes when it runs.

    For streams that run in turn, kernels that move V_k and collectives that move V_c bytes, the best shares are in
    proportion to the roots of the volumes [derivation: docs/physics.md B4].
    """

    collective_share: Real = real("1", within=Range(0.001, 0.999))
    moved_per_sent: Real = real(
        "1", doc="bytes that a collective reads and writes per byte that it sends", within=ABOVE_ZERO
    )

    def traffic(self) -> Values:
        """One: shares move no bytes."""
        return jnp.asarray(1.0)

    def bandwidth(self, sustained: Numeric) -> Values:
        """What collectives leave, `(1 - x) bw` [B/s]."""
        return (1.0 - jnp.asarray(self.collective_share)) * sustained

    def link_rate(self, rate: Numeric, sustained: Numeric) -> Values:
        """Bytes sent per time [B/s] over links with such a `rate` [B/s], `[rate^-p + (x bw / k)^-p]^(-1/p)`, p = 4."""
        return 1.0 / p_norm(4.0, 1.0 / jnp.asarray(rate), self.moved_per_sent / (self.collective_share * sustained))
