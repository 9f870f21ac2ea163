"""Cases of operations that move, join and divide channels."""
import torch
from torch import nn
from torch.nn import functional as F

from layers import case, conv, image, linear, parameter, pool, relu


def cat(*parts):
    return torch.cat(parts, 1)


case("concat_two", lambda m, x: m.fc(pool(m.c(relu(cat(m.a(x), m.b(x)))))), a=conv(3, 8), b=conv(3, 6), c=conv(14, 5),
     fc=linear(5, 3))


def concat_same(m, x):
    x = m.a(x)
    return m.fc(pool(cat(x, x)))


def concat_cascaded(m, x):
    a = m.a(x)
    ab = cat(a, m.b(a))
    return m.fc(pool(cat(ab, m.c(ab), a)))


def dense_block(m, x):
    x = m.stem(x)
    for norm, layer in ((m.n1, m.c1), (m.n2, m.c2)):
        x = cat(x, layer(relu(norm(x))))
    return m.fc(pool(x))


case("concat_same_tensor_twice", concat_same, a=conv(3, 8), fc=linear(16, 3))
case("concat_cascaded", concat_cascaded, a=conv(3, 6), b=conv(6, 4), c=conv(10, 5), fc=linear(21, 3))
case("concat_with_input", lambda m, x: m.fc(pool(m.b(cat(x, m.a(x))))), a=conv(3, 8), b=conv(11, 6), fc=linear(6, 3))
case("dense_block", dense_block, stem=conv(3, 8), n1=nn.BatchNorm2d(8), c1=conv(8, 4), n2=nn.BatchNorm2d(12),
     c2=conv(12, 4), fc=linear(16, 3))
case("residual_of_concats", lambda m, x: m.fc(pool(relu(cat(m.a(x), m.b(x)) + cat(m.c(x), m.d(x))))), a=conv(3, 4),
     b=conv(3, 6), c=conv(3, 4), d=conv(3, 6), fc=linear(10, 3))
case("residual_of_crossed_concats", lambda m, x: m.fc(pool(relu(cat(m.a(x), m.b(x)) + cat(m.c(x), m.d(x))))),
     a=conv(3, 4), b=conv(3, 6), c=conv(3, 6), d=conv(3, 4), fc=linear(10, 3))
case("concat_plus_conv", lambda m, x: m.fc(pool(cat(m.a(x), m.b(x)) + m.c(x))), a=conv(3, 4), b=conv(3, 6),
     c=conv(3, 10), fc=linear(10, 3))


def split_sizes(m, x):
    a, b = m.a(x).split([3, 5], 1)
    return m.fc(pool(m.b(a)) + pool(m.c(b)))


def chunk_two(m, x):
    a, b = m.a(x).chunk(2, 1)
    return m.fc(pool(m.b(a) + m.c(relu(b))))


def yolov8_c2f(m, x):
    parts = list(m.cv1(x).chunk(2, 1))
    parts.append(parts[-1] + m.m2(relu(m.m1(parts[-1]))))
    return m.fc(pool(m.cv2(torch.cat(parts, 1))))


def glu_gate(m, x):
    a, b = m.a(x).chunk(2, 1)
    return m.fc(pool(a * b.sigmoid()))


def slice_channels(m, x):
    x = m.a(x)
    return m.fc(pool(m.b(x[:, :3])) + pool(m.c(x[:, 3:])))


def overlapping_slices(m, x):
    x = m.a(x)
    return m.fc(pool(m.b(x[:, :5])) + pool(m.c(x[:, 3:])))


def norm_of_concat_then_split(m, x):
    a, b = m.bn(cat(m.a(x), m.b(x))).split([8, 4], 1)
    return m.fc(pool(m.c(relu(a))) + pool(m.d(relu(b))))


def split_concat_swap(m, x):
    a, b = m.a(x).chunk(2, 1)
    return m.fc(pool(m.b(cat(b, a)) + m.c(cat(a, b))))


def split_swap_add(m, x):
    x = m.a(x)
    a, b = x.chunk(2, 1)
    return m.fc(pool(x + cat(b, a)))


case("split_sizes", split_sizes, a=conv(3, 8), b=conv(3, 4), c=conv(5, 4), fc=linear(4, 3))
case("split_into_five", lambda m, x: m.fc(pool(sum(m.a(x).split([50] * 5, 1)))), a=conv(3, 250), fc=linear(50, 3))
case("chunk_two", chunk_two, a=conv(3, 8), b=conv(4, 6), c=conv(4, 6), fc=linear(6, 3))
case("yolov8_c2f", yolov8_c2f, cv1=conv(3, 8), m1=conv(4, 6, 3), m2=conv(6, 4, 3), cv2=conv(12, 5), fc=linear(5, 3))
case("glu_gate", glu_gate, a=conv(3, 16), fc=linear(8, 3))
case("glu_operation", lambda m, x: m.fc(pool(F.glu(m.a(x), 1))), a=conv(3, 16), fc=linear(8, 3))
case("slice_channels", slice_channels, a=conv(3, 8), b=conv(3, 4), c=conv(5, 4), fc=linear(4, 3))
case("overlapping_slices", overlapping_slices, a=conv(3, 8), b=conv(5, 4), c=conv(5, 4), fc=linear(4, 3))
case("strided_slice", lambda m, x: m.fc(pool(m.b(m.a(x)[:, ::2]))), a=conv(3, 8), b=conv(4, 6), fc=linear(6, 3))
case("batchnorm_after_concat_then_split", norm_of_concat_then_split, a=conv(3, 4), b=conv(3, 8), bn=nn.BatchNorm2d(12),
     c=conv(8, 5), d=conv(4, 5), fc=linear(5, 3))
case("split_concat_swap", split_concat_swap, a=conv(3, 8), b=conv(8, 5), c=conv(8, 5), fc=linear(5, 3))
case("split_swap_add", split_swap_add, a=conv(3, 8), fc=linear(8, 3))

case("flatten_linear", lambda m, x: m.fc2(relu(m.fc1(relu(m.a(x)).flatten(1)))), image(3, 4, 4), a=conv(3, 6),
     fc1=linear(96, 8), fc2=linear(8, 3))
case("view_linear_avgpool", lambda m, x: m.fc2(m.fc1(F.adaptive_avg_pool2d(m.a(x), 2).view(x.size(0), -1))),
     a=conv(3, 6), fc1=linear(24, 8), fc2=linear(8, 3))
case("mean_linear", lambda m, x: m.fc2(relu(m.fc1(m.a(x).mean([2, 3])))), a=conv(3, 6), fc1=linear(6, 8),
     fc2=linear(8, 3))
case("flatten_concat_linear", lambda m, x: m.fc(cat(m.a(x).flatten(1), F.max_pool2d(m.b(x), 2).flatten(1))),
     image(3, 4, 4), a=conv(3, 4), b=conv(3, 6), fc=linear(64 + 24, 3))
case("permute_flatten_linear", lambda m, x: m.fc2(relu(m.fc1(m.a(x).permute(0, 2, 3, 1).flatten(1)))), image(3, 3, 3),
     a=conv(3, 6), fc1=linear(54, 8), fc2=linear(8, 3))
case("permute_linear_nhwc", lambda m, x: m.fc(pool(m.b(m.l2(relu(m.l1(m.a(x).permute(0, 2, 3, 1)))).permute(0, 3, 1, 2)))),
     a=conv(3, 6), l1=linear(6, 10), l2=linear(10, 8), b=conv(8, 5), fc=linear(5, 3))
case("linear_view_convtranspose", lambda m, x: m.fc(pool(m.b(relu(m.l1(x).view(-1, 6, 2, 2))))), image(5),
     l1=linear(5, 24), b=nn.ConvTranspose2d(6, 4, 2, stride=2), fc=linear(4, 3))
case("flatten_with_3d_linear_elsewhere",
     lambda m, x: m.fc(cat(m.a(x).flatten(1), m.l1(x.flatten(2)).mean(1))), image(3, 4, 4), a=conv(3, 4),
     l1=linear(16, 6), fc=linear(64 + 6, 3))

case("pixel_shuffle", lambda m, x: m.fc(pool(m.b(F.pixel_shuffle(m.a(x), 2)))), image(3, 4, 4), a=conv(3, 24),
     b=conv(6, 4), fc=linear(4, 3))
case("pixel_unshuffle", lambda m, x: m.fc(pool(m.b(F.pixel_unshuffle(m.a(x), 2)))), image(3, 4, 4), a=conv(3, 6),
     b=conv(24, 4), fc=linear(4, 3))
case("pixel_shuffle_by_views", lambda m, x: m.fc(pool(m.b(
    m.a(x).view(-1, 2, 3, 3, 4, 4).permute(0, 1, 4, 2, 5, 3).reshape(-1, 2, 12, 12)))), image(3, 4, 4),
     a=conv(3, 18), b=conv(2, 4), fc=linear(4, 3))
case("channel_shuffle", lambda m, x: m.fc(pool(m.b(m.a(x).view(-1, 2, 4, 6, 6).transpose(1, 2).reshape(-1, 8, 6, 6)))),
     a=conv(3, 8), b=conv(8, 6, groups=2), fc=linear(6, 3))
case("channel_shuffle_operation", lambda m, x: m.fc(pool(m.b(F.channel_shuffle(m.a(x), 2)))), a=conv(3, 8),
     b=conv(8, 6, groups=2), fc=linear(6, 3))
case("stack_sum", lambda m, x: m.fc(pool(torch.stack([m.a(x), m.b(x)], 1).sum(1))), a=conv(3, 8), b=conv(3, 8),
     fc=linear(8, 3))
case("stack_of_channels", lambda m, x: m.fc(pool(m.b(torch.stack([m.a(x), m.c(x)], 2).flatten(1, 2)))), a=conv(3, 4),
     c=conv(3, 4), b=conv(8, 6), fc=linear(6, 3))


def unbind_then_add(m, x):
    a, b = m.a(x).unflatten(1, (2, 4)).unbind(1)
    return m.fc(pool(a * relu(b)))


def unet_skip(m, x):
    a = relu(m.a(x))
    b = relu(m.b(F.max_pool2d(a, 2)))
    up = F.interpolate(m.c(b), scale_factor=2, mode="nearest")
    return m.fc(pool(m.d(cat(a, up))))


def upsample_fpn(m, x):
    a = relu(m.a(x))
    b = relu(m.b(F.max_pool2d(a, 2)))
    top = F.interpolate(m.lateral_b(b), size=a.shape[-2:], mode="bilinear")
    return m.fc(pool(m.out(m.lateral_a(a) + top)))


case("unbind_then_multiply", unbind_then_add, a=conv(3, 8), fc=linear(4, 3))
case("unet_skip", unet_skip, a=conv(3, 8), b=conv(8, 6), c=conv(6, 5), d=conv(13, 4), fc=linear(4, 3))
case("upsample_fpn", upsample_fpn, a=conv(3, 6), b=conv(6, 8), lateral_a=conv(6, 4), lateral_b=conv(8, 4),
     out=conv(4, 4, 3), fc=linear(4, 3))
case("roll_of_channels", lambda m, x: m.fc(pool(m.b(torch.roll(m.a(x), 1, 1)))), a=conv(3, 8), b=conv(8, 6),
     fc=linear(6, 3))
case("roll_of_positions", lambda m, x: m.fc(pool(m.b(torch.roll(m.a(x), (1, 1), (2, 3))))), a=conv(3, 8), b=conv(8, 6),
     fc=linear(6, 3))
case("unknown_operation", lambda m, x: m.fc(pool(m.b(m.a(x).flip(1)) + m.c(x))), a=conv(3, 8), b=conv(8, 6),
     c=conv(3, 6), fc=linear(6, 3))
case("index_of_channels", lambda m, x: m.fc(pool(m.b(m.a(x)[:, [3, 1, 2, 0, 7, 5, 6, 4]]))), a=conv(3, 8),
     b=conv(8, 6), fc=linear(6, 3))
case("two_outputs", lambda m, x: (m.fc(pool(relu(m.a(x)))), m.fd(pool(m.b(relu(m.a(x)))))), a=conv(3, 8), b=conv(8, 6),
     fc=linear(8, 3), fd=linear(6, 2))


def output_is_intermediate(m, x):
    x = relu(m.a(x))
    return m.fc(pool(m.b(x))), x


case("output_is_intermediate", output_is_intermediate, a=conv(3, 8), b=conv(8, 6), fc=linear(6, 3))
case("two_inputs", lambda m, x, y: m.fc(pool(m.c(relu(m.a(x) + m.b(y))))), image(3, 6, 6), image(2, 6, 6),
     a=conv(3, 8), b=conv(2, 8), c=conv(8, 5), fc=linear(5, 3))


def shapes_of_others(m, x):
    a, b = m.a(x), m.b(x)
    return m.fc(pool(m.c(a.flatten(2).reshape_as(b) + b.flatten(2).view_as(a))))


case("shapes_of_others", shapes_of_others, a=conv(3, 8), b=conv(3, 8), c=conv(8, 6), fc=linear(6, 3))


def axes_in_another_order(m, x):
    y = m.a(x)
    rows = y.flatten(2).mT + y.movedim(1, -1).flatten(1, 2) + y.moveaxis((2, 3), (1, 2)).flatten(1, 2)
    rows = rows + y.flatten(2).swapaxes(1, 2) + y.flatten(2).swapdims(-2, -1) + y.flatten(2).adjoint()
    return m.fc((rows @ m.weight.T + rows @ m.other.t()).mean(1))


case("axes_in_another_order", axes_in_another_order, a=conv(3, 8), weight=parameter(6, 8), other=parameter(6, 8),
     fc=linear(6, 3))


def other_names(m, x):
    a, b = m.a(x).clip(-1, 1), m.b(x)
    joined = torch.concat([a.absolute(), torch.max(b, b.negative().subtract(1)).multiply(2)], 1)
    return m.fc(pool(torch.min(m.c(joined).true_divide(3), m.d(x).broadcast_to(x.shape[0], 6, 6, 6))))


case("other_names", other_names, a=conv(3, 8), b=conv(3, 5), c=conv(13, 6), d=conv(3, 6), fc=linear(6, 3))


def written_into(m, x):
    y = m.a(x).clone()
    y[:, :, 0] = m.b(x)[:, :, 1]
    y[:, 2:5] *= 2
    return m.fc(pool(m.c(y)))


case("written_into", written_into, a=conv(3, 8), b=conv(3, 8), c=conv(8, 6), fc=linear(6, 3))


def split_at_positions(m, x):
    first, second, third = m.a(x).tensor_split(3, 1)
    before, after = m.b(x).tensor_split((5,), 1)
    return m.fc(pool(m.c(cat(third, after, first)) + m.d(cat(second, before))))


case("split_at_positions", split_at_positions, a=conv(3, 8), b=conv(3, 7), c=conv(7, 6), d=conv(8, 6), fc=linear(6, 3))


def without_gradients(m, x):
    with torch.no_grad():
        scale = relu(m.a(x)).mean((2, 3), keepdim=True)
        shift = scale * 2
    with torch.autocast("cpu", enabled=False):
        y = m.b(x)
    with torch.no_grad():
        scale = scale + relu(m.a(x)).amax((2, 3), keepdim=True)
    return m.fc(pool(m.c(y * scale + shift)))


case("without_gradients", without_gradients, a=conv(3, 8), b=conv(3, 8), c=conv(8, 6), fc=linear(6, 3))


def weights_in_parts(m, x):
    first, second = (F.linear(x, part) for part in m.joined.chunk(2))
    return m.fc(((first * second) @ m.turned[:, 1:].t() @ m.stacked[1].mT) * (x @ (0.5 * m.stacked[0]).T)[:, :5])


case("weights_in_parts", weights_in_parts, image(6), joined=parameter(16, 6), turned=parameter(6, 9),
     stacked=parameter(2, 5, 6), fc=linear(5, 4))
