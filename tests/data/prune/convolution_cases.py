"""Cases of convolutions, their groups and their norms."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import weight_norm

from layers import case, conv, image, linear, parameter, pool, relu

case("conv_bn_relu_conv", lambda m, x: m.fc(pool(m.b(relu(m.bn(m.a(x)))))),
     a=conv(3, 8, 3, bias=False), bn=nn.BatchNorm2d(8), b=conv(8, 6, 3), fc=linear(6, 4))


def residual_add(m, x):
    x = m.a(x)
    return m.fc(pool(x + m.c(relu(m.b(x)))))


case("residual_add", residual_add, a=conv(3, 8), b=conv(8, 6), c=conv(6, 8), fc=linear(8, 4))
case("residual_to_model_input", lambda m, x: m.fc(pool(x + m.b(relu(m.a(x))))), image(4, 6, 6),
     a=conv(4, 8), b=conv(8, 4), fc=linear(4, 3))
case("transposed_conv", lambda m, x: m.fc(pool(m.c(relu(m.bn(m.b(m.a(x))))))), a=conv(3, 8),
     b=nn.ConvTranspose2d(8, 6, 2, stride=2), bn=nn.BatchNorm2d(6), c=conv(6, 4), fc=linear(4, 3))
case("transposed_conv_grouped", lambda m, x: m.fc(pool(m.c(relu(m.b(m.a(x)))))), a=conv(3, 8),
     b=nn.ConvTranspose2d(8, 12, 2, stride=2, groups=2), c=conv(12, 4), fc=linear(4, 3))
case("transposed_conv_depthwise", lambda m, x: m.fc(pool(relu(m.b(m.a(x))))), a=conv(3, 8),
     b=nn.ConvTranspose2d(8, 8, 2, stride=2, groups=8), fc=linear(8, 3))
case("group_conv", lambda m, x: m.fc(pool(m.c(relu(m.b(m.a(x)))))), a=conv(3, 8), b=conv(8, 12, 3, groups=2),
     c=conv(12, 4), fc=linear(4, 3))
case("group_conv_different_groups", lambda m, x: m.fc(pool(relu(m.c(relu(m.b(m.a(x))))))), a=conv(3, 8),
     b=conv(8, 16, 3, groups=2), c=conv(16, 8, groups=4), fc=linear(8, 3))
case("group_conv_coprime_groups", lambda m, x: m.fc(pool(relu(m.c(relu(m.b(m.a(x))))))), a=conv(3, 12),
     b=conv(12, 12, 3, groups=2), c=conv(12, 12, groups=3), fc=linear(12, 3))
case("group_conv_on_concat", lambda m, x: m.fc(pool(m.c(torch.cat([m.a(x), m.b(x)], 1)))), a=conv(3, 8), b=conv(3, 4),
     c=conv(12, 6, groups=3), fc=linear(6, 3))
case("depthwise", lambda m, x: m.fc(pool(m.c(relu(m.bn(m.b(relu(m.a(x)))))))), a=conv(3, 8), b=conv(8, 8, 3, groups=8),
     bn=nn.BatchNorm2d(8), c=conv(8, 5), fc=linear(5, 3))
case("depthwise_multiplier2", lambda m, x: m.fc(pool(m.c(relu(m.b(m.a(x)))))), a=conv(3, 8),
     b=conv(8, 16, 3, groups=8), c=conv(16, 5), fc=linear(5, 3))
case("groups_eq_out_fewer", lambda m, x: m.fc(pool(m.c(relu(m.b(m.a(x)))))), a=conv(3, 12), b=conv(12, 6, 3, groups=6),
     c=conv(6, 4), fc=linear(4, 3))
case("conv1d_net", lambda m, x: m.fc(pool(m.b(relu(m.bn(m.a(x)))))), image(3, 9), a=nn.Conv1d(3, 8, 3),
     bn=nn.BatchNorm1d(8), b=nn.Conv1d(8, 6, 3), fc=linear(6, 4))
case("conv3d_net", lambda m, x: m.fc(pool(m.b(relu(m.bn(m.a(x)))))), image(2, 4, 4, 4), a=nn.Conv3d(2, 8, 2),
     bn=nn.BatchNorm3d(8), b=nn.Conv3d(8, 6, 2), fc=linear(6, 4))
case("conv1d_flatten_linear", lambda m, x: m.fc2(relu(m.fc1(m.a(x).flatten(1)))), image(3, 4), a=nn.Conv1d(3, 8, 1),
     fc1=linear(32, 6), fc2=linear(6, 3))
case("conv3d_flatten_linear", lambda m, x: m.fc2(relu(m.fc1(m.a(x).flatten(1)))), image(2, 2, 2, 2),
     a=nn.Conv3d(2, 8, 1), fc1=linear(64, 6), fc2=linear(6, 3))
case("transposed_convs_1d_and_3d", lambda m, x: m.fc(pool(m.c(m.b(m.a(x)).flatten(2)))), image(2, 2, 2, 2),
     a=nn.ConvTranspose3d(2, 6, 2), b=nn.Conv3d(6, 8, 2), c=nn.ConvTranspose1d(8, 4, 2), fc=linear(4, 3))

case("instance_norm_affine", lambda m, x: m.fc(pool(relu(m.norm(m.a(x))))), a=conv(3, 8, 3),
     norm=nn.InstanceNorm2d(8, affine=True), fc=linear(8, 3))
case("instance_norm_tracking", lambda m, x: m.fc(pool(relu(m.norm(m.a(x))))), a=conv(3, 8, 3),
     norm=nn.InstanceNorm2d(8, affine=True, track_running_stats=True), fc=linear(8, 3))
case("group_norm", lambda m, x: m.fc(pool(m.b(relu(m.norm(m.a(x)))))), a=conv(3, 8, 3), norm=nn.GroupNorm(2, 8),
     b=conv(8, 6), fc=linear(6, 3))
case("group_norm_per_channel", lambda m, x: m.fc(pool(m.b(relu(m.norm(m.a(x)))))), a=conv(3, 8, 3),
     norm=nn.GroupNorm(8, 8), b=conv(8, 6), fc=linear(6, 3))
case("layer_norm_hw", lambda m, x: m.fc(pool(relu(m.norm(m.a(x))))), a=conv(3, 8, 3), norm=nn.LayerNorm([6, 6]),
     fc=linear(8, 3))
case("layer_norm_chw", lambda m, x: m.fc(pool(relu(m.norm(m.a(x))))), a=conv(3, 8, 3), norm=nn.LayerNorm([8, 6, 6]),
     fc=linear(8, 3))
case("prelu_shared", lambda m, x: m.fc(pool(m.act(m.a(x)))), a=conv(3, 8), act=nn.PReLU(), fc=linear(8, 3))
case("prelu_channel", lambda m, x: m.fc(pool(m.act(m.a(x)))), a=conv(3, 8), act=nn.PReLU(8), fc=linear(8, 3))


def shared_bn(m, x):
    return m.fc(pool(m.b(relu(m.bn(m.a(x)))) + relu(m.bn(m.c(x)))))


case("shared_conv_sequential", lambda m, x: m.fc(pool(m.b(relu(m.b(relu(m.a(x))))))), a=conv(3, 8), b=conv(8, 8, 3),
     fc=linear(8, 3))
case("shared_conv_parallel", lambda m, x: m.fc(pool(m.b(m.a(x)) + m.b(m.c(x)))), a=conv(3, 8), b=conv(8, 6),
     c=conv(3, 8), fc=linear(6, 3))
case("shared_bn", shared_bn, a=conv(3, 8), bn=nn.BatchNorm2d(8), b=conv(8, 8), c=conv(3, 8), fc=linear(8, 3))
case("shared_relu_module", lambda m, x: m.fc(pool(m.act(m.b(m.act(m.a(x)))))), a=conv(3, 8), act=nn.ReLU(),
     b=conv(8, 6), fc=linear(6, 3))



case("weight_norm_conv", lambda m, x: m.fc(pool(m.b(F.gelu(m.a(x))))), a=lambda: weight_norm(conv(3, 8, 3)),
     b=conv(8, 6), fc=linear(6, 3))


def with_holes(layer):
    """As torch.nn.utils.prune leaves it: a parameter times a buffer of zeros and ones."""
    holes = (torch.arange(layer.weight.numel()) % 3 > 0).float()
    prune.custom_from_mask(layer, "weight", holes.reshape(layer.weight.shape))
    layer.weight = layer.weight.detach()  # so that the module can be copied; its hook makes it anew
    return layer


case("weights_with_holes", lambda m, x: m.fc(pool(m.b(relu(m.a(x))))), a=lambda: with_holes(conv(3, 8, 3)),
     b=lambda: with_holes(conv(8, 6, 3)), fc=linear(6, 3))


def weight_standardization(m, x):
    """Written out, and as timm does it."""
    w, v = m.b.weight, m.c.weight
    w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True, correction=0) + 1e-5)
    v = F.batch_norm(v.reshape(1, len(v), -1), None, None, training=True).reshape_as(v)
    x = F.conv2d(relu(m.a(x)), w, m.b.bias, padding=1)
    return m.fc(pool(relu(F.conv2d(relu(x), v, m.c.bias, padding=1))))


case("weight_standardization", weight_standardization, a=conv(3, 8), b=conv(8, 6, 3), c=conv(6, 4, 3), fc=linear(4, 3))
case("functional_conv_param", lambda m, x: m.fc(pool(F.conv2d(relu(F.conv2d(x, m.w)), m.v, m.bias))),
     w=parameter(8, 3, 3, 3), v=parameter(6, 8, 1, 1), bias=parameter(6), fc=linear(6, 3))
case("unwrapped_scale_1c11", lambda m, x: m.fc(pool(relu(m.a(x) * m.scale))), a=conv(3, 8), scale=parameter(1, 8, 1, 1),
     fc=linear(8, 3))
case("unwrapped_layerscale", lambda m, x: m.fc(m.a(x).flatten(2).transpose(1, 2).mul(m.scale).mean(1)), a=conv(3, 8),
     scale=parameter(8), fc=linear(8, 3))
case("unwrapped_chw_scale", lambda m, x: m.fc(pool(relu(m.a(x) * m.scale + m.shift))), a=conv(3, 8),
     scale=parameter(8, 6, 6), shift=parameter(6), fc=linear(8, 3))


def frozen_first_conv():
    layer = conv(3, 8, 3)
    layer.requires_grad_(False)
    return layer


case("frozen_first_conv", lambda m, x: m.fc(pool(m.b(relu(m.a(x))))), a=frozen_first_conv, b=conv(8, 6),
     fc=linear(6, 3))
case("unused_layer", lambda m, x: m.fc(pool(m.a(x))), a=conv(3, 8), unused=conv(8, 8), fc=linear(8, 3))
case("single_channel_mid", lambda m, x: m.fc(pool(m.c(relu(m.b(relu(m.a(x))))))), a=conv(3, 8), b=conv(8, 1),
     c=conv(1, 6), fc=linear(6, 3))
case("odd_channels", lambda m, x: m.fc(pool(m.b(relu(m.bn(m.a(x)))))), a=conv(3, 7), bn=nn.BatchNorm2d(7),
     b=conv(7, 5), fc=linear(5, 3))


def repvgg(m, x):
    x = relu(m.a(x))
    return m.fc(pool(m.bn3(m.b3(x)) + m.bn1(m.b1(x)) + m.bn0(x)))


case("repvgg_branches", repvgg, a=conv(3, 8), b3=conv(8, 8, 3), bn3=nn.BatchNorm2d(8), b1=conv(8, 8),
     bn1=nn.BatchNorm2d(8), bn0=nn.BatchNorm2d(8), fc=linear(8, 3))


def dropout_and_pools(m, x):
    x = F.dropout(F.max_pool2d(relu(m.a(x)), 2), 0.3, m.training)
    return m.fc(F.adaptive_avg_pool2d(F.avg_pool2d(F.dropout2d(m.b(x), 0.3, m.training), 2), 1).flatten(1))


case("sync_free_dropout_pool", dropout_and_pools, a=conv(3, 8), b=conv(8, 6, 3), fc=linear(6, 3))


def squeeze_excite(m, x):
    x = m.a(x)
    gate = m.up(relu(m.down(F.adaptive_avg_pool2d(x, 1)))).sigmoid()
    return m.fc(pool(x * gate))


def squeeze_excite_linear(m, x):
    x = m.a(x)
    gate = m.up(relu(m.down(x.mean((2, 3))))).sigmoid().view(x.size(0), -1, 1, 1)
    return m.fc(pool(x * gate.expand_as(x)))


case("squeeze_excite", squeeze_excite, a=conv(3, 8), down=conv(8, 4), up=conv(4, 8), fc=linear(8, 3))
case("se_linear_view", squeeze_excite_linear, a=conv(3, 8), down=linear(8, 4), up=linear(4, 8), fc=linear(8, 3))


def gated(m, x):
    x = m.a(x)
    return m.fc(pool(x * m.gate(x).sigmoid()))


def cbam(m, x):
    x = m.a(x)
    maps = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
    return m.fc(pool(x * m.gate(maps).sigmoid()))


case("broadcast_gate_1ch", gated, a=conv(3, 8), gate=conv(8, 1), fc=linear(8, 3))
case("cbam_spatial", cbam, a=conv(3, 8), gate=conv(2, 1, 3), fc=linear(8, 3))


def groups_by_image(m, x):
    y = relu(m.a(x))
    b, c, h, w = y.shape
    kernels = (torch.sigmoid(m.route(pool(y))) @ m.kernels).view(b * 8, 1, 3, 3)
    mixed = F.conv2d(y.reshape(1, b * c, h, w), kernels, padding=1, groups=8 * b)
    return m.fc(pool(mixed.permute(1, 0, 2, 3).view(b, 8, h, w)))


case("groups_by_image", groups_by_image, a=conv(3, 8), route=linear(8, 3), kernels=parameter(3, 72), fc=linear(8, 3))
