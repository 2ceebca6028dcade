"""Boards of earlier versions: a training that began before an upgrade of the daemon is read all the same."""

from __future__ import annotations

import base64
import os
import zlib
from pathlib import Path

import pytest

from gpumon.common.paths import Places
from gpumon.model.frame import Boundary, Mark, Run, RunState, waited_between
from gpumon.tracking.reader import TagReader

# A board as version 1.0 wrote it, of a training that was killed in the validation of its second epoch. In the first
# it made ten steps, waited half a second for data, and logged a loss of 0.5 and a gradient norm that was NaN.
BOARD_1_0 = zlib.decompress(base64.b85decode(
    "c-rmRJ%|)n902gy^OF!zL^Q>vnOKOdpu{xSsA;YUfg{99&vkBh&KtA0E3<odeh`kB57PuwgfuCv6e6TbBM3=tAZQVYNg4|ij2dDo"
    "NKD?$?H(eh;ss6A-wz)D_qA`{yk&Xwc7{iGz4`Xe;YuY6_En<&YocgRNXw!*mFOW>pZeiy5x@JS_QCESU%Gl@=C$Z4a_-`eV~0Xq"
    "*{>KJTz{j8FCG{_9`5Ibetr7=%VpfO?vHD|bs3l+<?{Bqcx!fX@xOE8boFR)|10_xZ@u@+^&-B0Vbk+)|H~fIzBHtpA+1~W)rq3K"
    "B&1(Mnml#(QUm~tef~In>C=68KWBaOM&o)fTkOgG{da9IuIk0VACZ*?;Q#2SSKi;Y{O*15=k2S1FXCq#zbO7!xVL|QPg{7OTkJXX"
    "*6guwN2e-b7V~G@*3|KG9vk<r`EY@GMEBW`|Lr`^jE~+P=$$u9pI@FT&fU?-`RJpC&gBoB$KucD%m2Ewp;(Wl{R{NY|Iw8@GYie5"
    "@|f1+%dZE{FA3ku{CWN3-%gg#Nr$%m`6TDzmkIy?000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000002M)9h&6N+#2IC~l?QxEg1Tx$Nexp)j6@rkQsBPN?g)^ZG=n%ac|pZmGu2c0Fm<=8K_Qvr+40N5WWJt8pWp"
    "&gy9=9@-rbkL=o<#G}=CI_qR(&Ei^NoOa$w^SNw#uw9=BU0)4X%<@jRR#udwjwPM6%uJ@;Jgb-EHQSv|_|*P9Y1CTne6kq&;6&(H"
    "wuY8&o@A{Mr;}#ZNV;j!VJzvEL%!=92LJ#70001<RnP4EUoU+D00000004mJ#6Pmizmo"
))  # fmt: skip


@pytest.fixture
def seen(tmp_path: Path) -> tuple[Run, list[Boundary]]:
    (tmp_path / "tags").mkdir()
    path = tmp_path / "tags" / f"tag.{os.getuid()}.4711.00000000"
    path.write_bytes(BOARD_1_0)
    path.chmod(0o644)
    reader = TagReader(Places(explicit=str(tmp_path), uid=os.getuid()))
    poll = reader.poll()
    reader.close()
    assert poll.about == {}, "it had no particulars yet"
    return poll.runs[0], poll.boundaries


def test_a_board_of_version_1_0_tells_its_run(seen: tuple[Run, list[Boundary]]) -> None:
    run, _ = seen
    assert (run.name, run.id, run.framework, run.state) == ("net", "net-1", "torch", RunState.DIED)
    assert (run.epoch, run.epochs, run.step, run.phase, run.wait) == (1, 3, 10, "validate", 0.5)
    assert (run.memory.allocated, run.memory.peak) == (10, 15)


def test_a_board_of_version_1_0_tells_its_boundaries(seen: tuple[Run, list[Boundary]]) -> None:
    _, boundaries = seen
    assert [found.mark for found in boundaries] == [
        Mark.RUN_BEGIN, Mark.EPOCH_BEGIN, Mark.EPOCH_END, Mark.EPOCH_BEGIN, Mark.PHASE,
    ]  # fmt: skip
    assert waited_between(boundaries[1].wait, boundaries[2].wait) == 0.5
    assert all(found.peak != found.peak for found in boundaries), "it did not tell peaks"


def test_a_nan_of_version_1_0_may_mean_that_nothing_was_logged(seen: tuple[Run, list[Boundary]]) -> None:
    run, boundaries = seen
    assert run.metrics == {"loss": 0.5}
    assert boundaries[2].metrics == {"loss": 0.5}
