"""Cases of channels on axes where layers do not expect them, and of sums over them."""
import torch
from torch import nn
from torch.nn import functional as F

from layers import case, conv, image, linear, parameter, pool, relu, wave


def line():
    """3 channels of 16 positions."""
    return wave(2, 3, 16)


def conv1d(inputs, outputs):
    return nn.Conv1d(inputs, outputs, 1)


def rows_as_images(layer):
    """Every channel of every image is an image of its own."""
    def run(m, x):
        y = m.a(x)
        rows = layer(m, y.reshape(y.shape[0] * y.shape[1], 1, *y.shape[2:]))
        return m.fc(pool(rows.reshape(*y.shape[:2], *rows.shape[2:])))
    return run


case("rows_as_images_of_a_conv", rows_as_images(lambda m, y: m.blur(y)), a=conv(3, 8), blur=conv(1, 1, 3),
     fc=linear(8, 3))
case("rows_as_images_pooled", rows_as_images(lambda m, y: F.avg_pool2d(y, 2)), a=conv(3, 8), fc=linear(8, 3))
case("rows_as_images_normalized", rows_as_images(lambda m, y: m.norm(y)), a=conv(3, 8), norm=nn.BatchNorm2d(1),
     fc=linear(8, 3))


def rows_of_open_sizes(m, x):
    y = m.a(x)
    b, c, h, w = y.shape
    return m.fc(m.l1(y.reshape(b * c, h * w)).reshape(b * c, -1).mean(1).view(b, c))


def rows_as_copies(m, x):
    y = m.a(x)
    b, c, h, w = y.shape
    return m.fc(pool(y.reshape(b * c, 1, h, w).expand(b * c, 2, -1, -1).reshape(b, c, 2 * h, w)))


case("rows_of_open_sizes", rows_of_open_sizes, a=conv(3, 8), l1=linear(36, 5), fc=linear(8, 3))
case("rows_as_copies", rows_as_copies, a=conv(3, 8), fc=linear(8, 3))
case("steps_of_lstm", lambda m, x: m.fc(m.rnn(m.a(x))[1][0][-1]), line(), a=conv1d(3, 8),
     rnn=lambda: nn.LSTM(16, 5, batch_first=True), fc=linear(5, 3))
case("steps_of_gru", lambda m, x: m.fc(m.rnn(m.a(x))[0].mean(1)), line(), a=conv1d(3, 8),
     rnn=lambda: nn.GRU(16, 5, batch_first=True), fc=linear(5, 3))


# Sums over channels that are not zero when their rows are: a bias of other axes is added to them.
case("sum_of_normalized_rows", lambda m, x: m.fc(m.norm(m.a(x)).sum(1)), line(), a=conv1d(3, 8), norm=nn.LayerNorm(16),
     fc=linear(16, 3))


def gated_sum(m, x):
    y = m.l1(m.a(x))
    return m.fc((y.softmax(-1) * y).sum(1))


case("sum_of_biased_rows", gated_sum, line(), a=conv1d(3, 8), l1=linear(16, 6), fc=linear(6, 3))
case("sum_of_unbiased_rows", gated_sum, line(), a=conv1d(3, 8), l1=linear(16, 6, bias=False), fc=linear(6, 3))


def weighted_sum(m, x):
    y = m.a(x).sigmoid()
    return m.fc((y * m.scale.expand_as(y)).sum(1))


case("sum_by_weights_of_another_axis", weighted_sum, line(), a=conv1d(3, 8), scale=parameter(1, 1, 16),
     fc=linear(16, 3))


class Frozen(nn.Module):
    """Values that are no parameters: masks leave them as they are."""

    def __init__(self, *sizes):
        super().__init__()
        self.register_buffer("w", wave(*sizes))


def ratios(m, x):
    y = m.l1(x)
    return m.fc((y.unsqueeze(2) / (1 + y.unsqueeze(1).abs())).sum(2))


def weighted_copies(m, x):
    y = m.l1(x)
    squares = y.unsqueeze(2) * y.unsqueeze(1)
    return m.fc((y.unsqueeze(2).expand_as(squares) * squares.sigmoid()).sum(2))


case("sum_of_ratios", ratios, image(6), l1=linear(6, 8), fc=linear(8, 4))
case("sum_of_weighted_copies", weighted_copies, image(6), l1=linear(6, 8), fc=linear(8, 4))
case("sum_by_a_buffer", lambda m, x: m.fc(m.l1(x).sigmoid() @ m.frozen.w), image(6), l1=linear(6, 8),
     frozen=Frozen(8, 5), fc=linear(5, 4))
case("linear_by_a_buffer", lambda m, x: m.fc(F.linear(m.l1(x).sigmoid(), m.frozen.w)), image(6), l1=linear(6, 8),
     frozen=Frozen(5, 8), fc=linear(5, 4))
case("conv_by_a_buffer", lambda m, x: m.fc(pool(F.conv2d(m.a(x).sigmoid(), m.frozen.w))), a=conv(3, 8),
     frozen=Frozen(5, 8, 1, 1), fc=linear(5, 4))
case("conv_by_a_buffer_of_zeros", lambda m, x: m.fc(pool(F.conv2d(relu(m.a(x)), m.frozen.w))), a=conv(3, 8),
     frozen=Frozen(5, 8, 1, 1), fc=linear(5, 4))
case("sum_of_rows_biased_by_a_buffer", lambda m, x: m.fc(F.linear(x, m.w, m.frozen.w).sum(1, keepdim=True)), image(6),
     w=parameter(8, 6), frozen=Frozen(8), fc=linear(1, 4))


def written_through_a_view(m, x):
    y = m.l1(x)
    y[:, 2:].sigmoid_()
    return m.fc(y.sum(1, keepdim=True))


case("sum_of_what_a_view_has_changed", written_through_a_view, image(6), l1=linear(6, 8), fc=linear(1, 4))


def rectified_through_a_view(m, x):
    y = m.l1(x)
    y[:, 2:].relu_()
    return m.fc(y.sum(1, keepdim=True))


case("sum_of_what_a_view_has_rectified", rectified_through_a_view, image(6), l1=linear(6, 8), fc=linear(1, 4))
case("squeeze_whatever_has_one", lambda m, x: m.fc(F.adaptive_avg_pool2d(relu(m.a(x)), 1).squeeze()), a=conv(3, 8),
     fc=linear(8, 3))
case("squeeze_of_several", lambda m, x: m.fc(m.l1(x).unsqueeze(1).squeeze(-1).squeeze(1)), image(6), l1=linear(6, 2),
     fc=linear(2, 4))


# What is taken over one axis leaves the others.
case("normalized_channels", lambda m, x: m.fc(pool(m.b(F.normalize(relu(m.a(x)), dim=1)))), a=conv(3, 8), b=conv(8, 6),
     fc=linear(6, 3))
case("normalized_sigmoids", lambda m, x: m.fc(pool(m.b(F.normalize(m.a(x).sigmoid(), dim=1)))), a=conv(3, 8),
     b=conv(8, 6), fc=linear(6, 3))
case("greatest_channel", lambda m, x: m.fc(pool(m.a(x) * m.a(x).max(1, keepdim=True)[0])), a=conv(3, 8),
     fc=linear(8, 3))


def greatest_of_four(m, x):
    layers = [m.a(x), m.b(x), m.c(x), m.d(x)]
    return m.fc(pool(m.e(torch.cat([layer.amax(1, keepdim=True) for layer in reversed(layers)], 1))))


# Not made in the order in which they run, nor looked at in that order.
case("greatest_of_four", greatest_of_four, e=conv(4, 2), fc=linear(2, 3), a=conv(3, 3), b=conv(3, 4), c=conv(3, 5),
     d=conv(3, 6))
case("place_of_the_greatest", lambda m, x: m.fc(pool(m.a(x) * m.a(x).max(1, keepdim=True)[1])), a=conv(3, 8),
     fc=linear(8, 3))


def statistics_of_positions(m, x):
    rows = m.a(x).flatten(2)
    return m.fc(rows.std(-1) + rows.max(-1)[0] + rows.logsumexp(-1) + rows.topk(3, -1)[0].mean(-1) +
                rows.cumsum(-1)[:, :, 4] + rows.argmax(-1) + rows.norm(dim=-1) + torch.var_mean(rows, -1)[1])


case("statistics_of_positions", statistics_of_positions, a=conv(3, 8), fc=linear(8, 3))
case("differences_of_positions",
     lambda m, x: m.fc(m.a(x).flatten(2).diff(prepend=m.b(x).flatten(2)[:, :, :1]).square().mean(-1)), a=conv(3, 8),
     b=conv(3, 8), fc=linear(8, 3))
case("sorted_channels", lambda m, x: m.fc(m.b(m.a(x).sort(1)[0]).amax((2, 3))), a=conv(3, 8), b=conv(8, 6),
     fc=linear(6, 3))
