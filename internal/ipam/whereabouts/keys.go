// SPDX-License-Identifier: Apache-2.0

package whereabouts

// IdleKeys are its options that have no effect in weft, each with the reason.
func IdleKeys() [][2]string {
	const lease, store = "blocks are claimed with compare-and-swap, no leader is elected",
		"the agent knows where the cluster's objects are"
	return [][2]string{
		{"leader_lease_duration", lease},
		{"leader_renew_deadline", lease},
		{"leader_retry_period", lease},
		{"sleep_for_race", lease},
		{"reconciler_cron_expression", "nothing is left behind that would have to be collected"},
		{"node_slice_size", "each node has blocks of its own anyway"},
		{"log_file", "the agent has one log"},
		{"log_level", "the agent has one log"},
		{"datastore", store},
		{"etcd_host", store},
		{"etcd_username", store},
		{"etcd_password", store},
		{"etcd_key_file", store},
		{"etcd_cert_file", store},
		{"etcd_ca_cert_file", store},
		{"kubernetes", store},
	}
}
