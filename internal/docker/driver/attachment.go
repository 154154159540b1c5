// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// annotations of the pod of an attachment.
const (
	annotationMAC     = "cni.projectcalico.org/hwAddr"
	annotationAddrs   = "cni.projectcalico.org/ipAddrs"
	annotationPools4  = "cni.projectcalico.org/ipv4pools"
	annotationPools6  = "cni.projectcalico.org/ipv6pools"
	annotationFamily  = "cni.projectcalico.org/ipFamilies"
	annotationDefault = "v1.multus-cni.io/default-network"
)

// attachments are the agent's attachments of endpoints.
type attachments struct {
	agent   *agent
	records *records
	nsDir   string
}

// attach makes the attachment in a namespace in which nothing runs, at the valid addresses of want, if there are any.
func (at *attachments) attach(e *endpoint, n network, want []netip.Addr) error {
	want = slices.DeleteFunc(want, func(a netip.Addr) bool { return !a.IsValid() })
	four, six := at.records.families(n.ID)
	annotations := map[string]string{}
	put := func(key string, value any) error {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("annotation %s: %w", key, err)
		}
		annotations[key] = string(text)
		return nil
	}
	if n.Options.Network != "" {
		selection := map[string]any{}
		selection["namespace"], selection["name"], _ = strings.Cut(n.Options.Network, "/")
		if e.MAC != "" {
			selection["mac"] = e.MAC
		}
		if len(want) > 0 {
			selection["ips"] = want
		}
		if err := put(annotationDefault, []any{selection}); err != nil {
			return err
		}
	}
	var families []string
	if four {
		families = append(families, string(model.IPv4))
	}
	if six {
		families = append(families, string(model.IPv6))
	}
	var addrs []string
	for _, a := range want {
		addrs = append(addrs, a.String())
	}
	for key, list := range map[string][]string{
		annotationPools4: n.Pools4, annotationPools6: n.Pools6, annotationFamily: families, annotationAddrs: addrs,
	} {
		if len(list) > 0 {
			if err := put(key, list); err != nil {
				return err
			}
		}
	}
	if e.MAC != "" {
		annotations[annotationMAC] = e.MAC
	}
	ns, err := netns.New(at.nsPath(*e))
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	got, err := at.agent.add(attachment{
		id: e.ID, namespace: n.Options.Namespace, annotations: annotations, ns: ns, mac: e.MAC,
	})
	if err != nil {
		return err
	}
	for _, a := range got {
		switch {
		case a.Addr().Is4() && four && !e.Address.IsValid():
			e.Address = a
		case a.Addr().Is6() && six && !e.Offered6.IsValid():
			e.Offered6 = a
		}
	}
	if e.Pool6 != "" {
		e.Address6 = e.Offered6
	}
	if !e.address().IsValid() {
		return n.lacks(!four)
	}
	for _, a := range want {
		if a != e.Address.Addr() && a != e.Offered6.Addr() {
			return model.Errorf(model.CodeInvalidConf, "leave --ip and --ip6 out, or use another network",
				"address %s: network %s allocates others", a, n.name())
		}
	}
	return nil
}

// lacks returns the error of a network that has no addresses of a family that Docker requests, IPv6 or IPv4.
func (n network) lacks(six bool) error {
	if six {
		return model.Errorf(model.CodeInvalidConf, "leave --ipv6 out, or add an IPv6 pool to the cluster",
			"network %s has no IPv6 addresses", n.name())
	}
	return model.Errorf(model.CodeInvalidConf,
		"add an IPv4 pool to the cluster, or create the network with --ipv6 --ipv4=false, which dockerd has from version 28 on",
		"network %s has no IPv4 addresses", n.name())
}

// name names the network in errors.
func (n network) name() string {
	if n.Options.Network != "" {
		return n.Options.Network
	}
	return "of the cluster"
}

// nsPath is the path of the namespace of an ADD.
func (at *attachments) nsPath(e endpoint) string { return filepath.Join(at.nsDir, e.ID) }

// detach undoes an attachment and forgets it. It is idempotent.
func (at *attachments) detach(e endpoint) error {
	namespace := "default"
	if n, ok := at.records.network(e.Network); ok {
		namespace = n.Options.Namespace
	}
	if err := at.agent.del(e.ID, namespace); err != nil {
		return err
	}
	if err := netns.Remove(at.nsPath(e)); err != nil {
		return err
	}
	return at.records.dropEndpoint(e.ID)
}
