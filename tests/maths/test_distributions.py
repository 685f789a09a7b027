import numpy as np
import pytest

from starling.maths.distributions import Bernoulli, Categorical, MultiDiscrete
from tests.maths.helpers import allclose, check_gradients, f32, i32, rlax

pytestmark = pytest.mark.filterwarnings("ignore:Rlax:PendingDeprecationWarning")
B, A = 6, 5
ALMOST_ONE = np.nextafter(np.float32(1), np.float32(0))


@pytest.fixture
def logits(rng):
    return f32(2 * rng.normal(size=(B, A)))


def softmax(x):
    e = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_categorical_numbers_match_rlax(run, logits, rng):
    action = i32(rng.integers(A, size=B))
    other = f32(rng.normal(size=(B, A)))
    reference = rlax.softmax()
    allclose(run(lambda x, a: Categorical(x).log_prob(a), logits, action), reference.logprob(action, logits))
    allclose(run(lambda x: Categorical(x).entropy(), logits), reference.entropy(logits))
    expected = rlax.categorical_kl_divergence(logits, other)
    allclose(run(lambda x, y: Categorical(x).kl(Categorical(y)), logits, other), expected)
    assert list(run(lambda x: Categorical(x).mode(), logits)) == list(logits.argmax(axis=-1))


def test_categorical_sampling_inverts_the_cumulative_distribution(run):
    logits = f32(np.log([[0.2, 0.5, 0.3]] * 6))
    noise = f32([0.0, 0.199, 0.201, 0.699, 0.701, ALMOST_ONE])
    action = run(lambda x, u: Categorical(x).sample(u), logits, noise)
    assert action.dtype == np.int32
    assert action.tolist() == [0, 0, 1, 1, 2, 2]


def test_categorical_samples_come_as_often_as_they_should(run, rng, logits):
    wide = np.broadcast_to(logits, (4000, B, A)).copy()
    action = run(lambda x, u: Categorical(x).sample(u), wide, rng.random((4000, B), dtype=np.float32))
    frequency = np.stack([(action == a).mean(axis=0) for a in range(A)], axis=-1)
    allclose(frequency, softmax(logits), atol=0.03)


def test_a_sample_with_its_log_prob_is_the_two_apart(run, rng, logits):
    noise = rng.random(B, dtype=np.float32)
    for mask in (None, rng.random((B, A)) > 0.5):
        if mask is not None:
            mask[:, 2] = True
        action, log_prob = run(lambda x, u, m: Categorical(x, m).sample_with_log_prob(u), logits, noise, mask)
        assert action.dtype == np.int32
        assert action.tolist() == run(lambda x, u, m: Categorical(x, m).sample(u), logits, noise, mask).tolist()
        allclose(log_prob, run(lambda x, a, m: Categorical(x, m).log_prob(a), logits, action, mask))


@pytest.mark.parametrize("noise", [0.0, 0.5, ALMOST_ONE, 1.0])
def test_masked_actions_are_never_sampled(run, rng, noise):
    size = 23  # long enough that a parallel cumulative sum rounds otherwise than a serial one
    mask = rng.random((500, size)) > 0.6
    mask[np.arange(500), rng.integers(size, size=500)] = True
    mask[:4] = False
    mask[[0, 1], 0] = mask[[2, 3], size - 1] = True  # one possible action, at either end
    logits = f32(3 * rng.normal(size=(500, size)))
    logits[~mask] += 50.0  # the most attractive ones are forbidden
    fn = lambda x, u, m: (Categorical(x, m).sample(u), Categorical(x, m).mode())  # noqa: E731
    for actions in run(fn, logits, np.full(500, noise, "f"), mask):
        assert mask[np.arange(500), actions].all()


def test_a_mask_is_the_softmax_over_what_is_left(run, logits):
    mask = np.array([[True, False, True, True, False]] * B)
    left = logits[:, mask[0]]
    p = softmax(left)
    allclose(run(lambda x, m: Categorical(x, m).entropy(), logits, mask), -(p * np.log(p)).sum(axis=-1))
    log_prob = run(lambda x, m, a: Categorical(x, m).log_prob(a), logits, mask, i32([2] * B))
    allclose(log_prob, np.log(p[:, 1]))
    q = softmax(0.5 * left)
    kl = run(lambda x, m: Categorical(x, m).kl(Categorical(0.5 * x, m)), logits, mask)
    allclose(kl, (p * np.log(p / q)).sum(axis=-1), atol=1e-5)


def test_masks_keep_values_and_gradients_finite(rng):
    logits, mask = f32(rng.normal(size=(3, 4))), np.zeros((3, 4), dtype=bool)
    mask[0, 1] = mask[1, :2] = True  # and a row with nothing possible, such as padding

    def loss(x, m, a):
        policy = Categorical(x, m)
        return policy.entropy() + policy.kl(Categorical(0.3 * x, m)) + policy.log_prob(a)

    gradient = check_gradients(loss, logits, fixed=(mask, i32([1, 0, 0])))[0]
    assert np.isfinite(gradient).all()
    assert np.count_nonzero(gradient[0]) == 0


def test_extreme_logits_stay_finite(run):
    logits = f32([[1e4, 0.0, -1e4], [-1e8, -1e8, -1e8], [3e7, 3e7, 0.0]])
    fn = lambda x, u: (*Categorical(x).sample_with_log_prob(u), Categorical(x).entropy())  # noqa: E731
    action, log_prob, entropy = run(fn, logits, f32([0.9, 0.5, 0.75]))
    assert action.tolist() == [0, 1, 1]
    allclose(log_prob, [0.0, -np.log(3), -np.log(2)])
    allclose(entropy, [0.0, np.log(3), np.log(2)])


def test_one_action_and_no_batch_work(run):
    action, log_prob = run(lambda x, u: Categorical(x).sample_with_log_prob(u), f32([[2.0]]), f32([0.7]))
    assert (action.tolist(), log_prob.tolist()) == ([0], [0.0])
    action, log_prob = run(lambda x, u: Categorical(x).sample_with_log_prob(u), f32([0.0, 0.0]), np.float32(0.7))
    assert action == 1
    allclose(log_prob, np.log(0.5))


def test_multi_discrete_is_the_product_of_its_parts(run, rng):
    logits, noise = f32(rng.normal(size=(B, 7))), rng.random((B, 3), dtype=np.float32)
    sizes = (2, 4, 1)
    policy = lambda x: MultiDiscrete.split(x, sizes)  # noqa: E731
    assert MultiDiscrete.split(logits, sizes).noise_shape == (B, 3)
    action, log_prob = run(lambda x, u: policy(x).sample_with_log_prob(u), logits, noise)
    assert action.dtype == np.int32
    assert action.tolist() == run(lambda x, u: policy(x).sample(u), logits, noise).tolist()
    parts = [logits[:, :2], logits[:, 2:6], logits[:, 6:]]
    expected = sum(np.log(softmax(x))[np.arange(B), action[:, k]] for k, x in enumerate(parts))
    allclose(log_prob, expected)
    allclose(run(lambda x, a: policy(x).log_prob(a), logits, action), expected)
    allclose(run(lambda x: policy(x).entropy(), logits), sum(-(softmax(x) * np.log(softmax(x))).sum(-1) for x in parts))
    allclose(run(lambda x: policy(x).kl(policy(x)), logits), np.zeros(B))
    assert run(lambda x: policy(x).mode(), logits)[:, 1].tolist() == parts[1].argmax(axis=-1).tolist()


def test_multi_discrete_masks_its_parts(run, rng):
    logits = f32(rng.normal(size=(B, 5)))
    mask = np.array([[True, False, False, False, True]] * B)
    action = run(lambda x, u, m: MultiDiscrete.split(x, (2, 3), m).sample(u), logits, f32(rng.random((B, 2))), mask)
    assert action.tolist() == [[0, 2]] * B


def test_bernoulli_by_hand(run):
    logits = f32([[0.0, np.log(3.0)]])  # probabilities ½ and ¾
    noise = f32([[0.4, 0.8]])
    action, log_prob = run(lambda x, u: Bernoulli(x).sample_with_log_prob(u), logits, noise)
    assert action.dtype == np.int32
    assert action.tolist() == [[1, 0]]
    allclose(log_prob, [np.log(0.5) + np.log(0.25)])
    entropy = np.log(2) - (0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    allclose(run(lambda x: Bernoulli(x).entropy(), logits), [entropy])
    kl = 0.75 * np.log(0.75 / 0.5) + 0.25 * np.log(0.25 / 0.5)
    allclose(run(lambda x: Bernoulli(x).kl(Bernoulli(0.0 * x)), logits), [kl])
    assert run(lambda x: Bernoulli(x).mode(), logits).tolist() == [[0, 1]]


def test_bernoulli_stays_finite_at_extreme_logits(run):
    logits = f32([[100.0, -100.0]])
    fn = lambda x: (Bernoulli(x).entropy(), Bernoulli(x).log_prob(1 - Bernoulli(x).mode()))  # noqa: E731
    entropy, log_prob = run(fn, logits)
    allclose(entropy, [0.0])
    allclose(log_prob, [-200.0])


def test_gradients_agree(rng, logits):
    other, action = f32(rng.normal(size=(B, A))), i32(rng.integers(A, size=B))

    def loss(x, y, a):
        p, q = Categorical(x), Categorical(y)
        return p.log_prob(a) + p.entropy() * q.entropy() + p.kl(q)

    check_gradients(loss, logits, other, fixed=(action,))
    check_gradients(lambda x, y: Bernoulli(x).entropy() + Bernoulli(x).kl(Bernoulli(y)), logits, other)


def test_noise_is_described():
    logits = f32(np.zeros((3, 4)))
    assert (Categorical(logits).noise_kind, Categorical(logits).noise_shape) == ("uniform", (3,))
    assert (Bernoulli(logits).noise_kind, Bernoulli(logits).noise_shape) == ("uniform", (3, 4))
