// SPDX-License-Identifier: Apache-2.0

package cni

import "testing"

// BenchmarkCall is what a plugin does before and after its work: read the call and the configuration, print the result.
func BenchmarkCall(b *testing.B) {
	conf := []byte(`{"cniVersion":"1.0.0","name":"net","type":"bridge","bridge":"br0","isGateway":true,"ipMasq":true,
		"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`)
	env := environ("CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_NETNS=/x", "CNI_IFNAME=eth0", "CNI_PATH=/a")
	r := sample()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseCall(env, conf); err != nil {
			b.Fatal(err)
		}
		if _, _, err := ParsePlugin(conf); err != nil {
			b.Fatal(err)
		}
		if _, err := FormatResult(r, "1.0.0"); err != nil {
			b.Fatal(err)
		}
	}
}
