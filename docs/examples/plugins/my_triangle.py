"""A schedule (plugins.md)."""

from dataclasses import dataclass

from nmt.registry import SCHEDULES
from nmt.training.schedules import Schedule, ScheduleOptions


@SCHEDULES.register("triangle")
class Triangle(Schedule):
    """Up from 0 to `training.lr` and down again, over and over (Smith, WACV 2017)."""

    @dataclass(frozen=True, kw_only=True)
    class Options(ScheduleOptions):
        period: int = 2000
        """Updates up and down."""

    def _rate_at(self, step):  # before update number step + 1
        place = step % self.options.period / self.options.period
        return self.lr * (1 - abs(2 * place - 1))
