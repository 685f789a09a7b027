from starling.components.networks import heads, policy_heads, value_heads


def test_every_head_is_found_in_one_place():
    assert sorted(heads.__all__) == sorted([*policy_heads.__all__, *value_heads.__all__])
    assert all(getattr(heads, name) is not None for name in heads.__all__)
