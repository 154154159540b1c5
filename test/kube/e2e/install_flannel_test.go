// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// flannelConfig is kube-flannel's ConfigMap, as its manifest has it but for the namespace.
const flannelConfig = `
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-flannel-cfg, namespace: kube-system}
data:
  cni-conf.json: |
    {"name": "cbr0", "cniVersion": "0.3.1", "plugins": [
      {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
      {"type": "portmap", "capabilities": {"portMappings": true}}]}
  net-conf.json: |
    {"Network": "NETWORK", "EnableNFTables": false, "Backend": {"Type": "vxlan"}}
`

// TestInstallFlannel: a new user installs weft in flannel's place, with the binding for VMs, by weft cluster. Without
// flannel's ConfigMap it says what is missing; with it nodes become ready and pods on two nodes reach each other by
// flannel's device. The removal leaves nodes and API as they were.
func TestInstallFlannel(t *testing.T) {
	kube(t)
	program := weftCluster(t)
	c := bareCluster(t, "insfla")
	weft := func(args ...string) (string, error) {
		return c.try("exec", append([]string{"control", program}, args...)...)
	}
	ns := c.namespace(t)
	before := c.settledSnapshot(t)
	values := []string{"--set", "mode=flannel", "--set", "kubevirt.directBinding=true", "--set", "image.tag=dev"}
	if out, err := weft(append([]string{"install", "--timeout", "20s"}, values...)...); err == nil ||
		!strings.Contains(out+fmt.Sprint(err), "kube-flannel-cfg") {
		t.Errorf("without flannel's ConfigMap: %s%v", out, err)
	}
	network := c.kubectl(t, "get", "nodes", "-o", "jsonpath={.items[0].spec.podCIDR}")
	octets := strings.Split(network, ".")
	c.apply(t, "kube-system", strings.Replace(flannelConfig, "NETWORK", octets[0]+"."+octets[1]+".0.0/16", 1))
	if out, err := weft(append([]string{"upgrade"}, values...)...); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	c.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
	c.kubectl(t, "get", "-n", "default", "network-attachment-definitions.k8s.cni.cncf.io", "weft-direct")
	pods := c.rollOut(t, ns, "web", 2)
	eventually(t, 30*time.Second, func() error {
		_, err := c.dial(pods[0], "http", pods[1].Status.PodIP, 8080)
		return err
	})
	if routes := c.must(t, "exec", pods[0].Spec.NodeName, "ip", "route", "show", "dev", "flannel.1"); !strings.Contains(routes, " via ") {
		t.Errorf("routes over flannel.1: %s", routes)
	}
	c.kubectl(t, "-n", ns, "delete", "deployment", "--all", "--cascade=foreground", "--timeout=2m")
	if out, err := weft("uninstall", "--yes"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	c.kubectl(t, "-n", "kube-system", "delete", "configmap", "kube-flannel-cfg")
	eventually(t, time.Minute, func() error {
		if left := changes(before, c.snapshot(t)); left != "" {
			return fmt.Errorf("weft left or changed (- before, + after):\n%s", left)
		}
		return nil
	})
}
