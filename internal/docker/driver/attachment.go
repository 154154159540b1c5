// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
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

// attach makes the attachment in a namespace in which nothing runs.
func (at *attachments) attach(e *endpoint, n network, want netip.Addr) error {
	annotations := map[string]string{}
	if n.Options.Network != "" {
		selection := map[string]any{}
		selection["namespace"], selection["name"], _ = cut(n.Options.Network)
		if e.MAC != "" {
			selection["mac"] = e.MAC
		}
		if want.IsValid() {
			selection["ips"] = []string{want.String()}
		}
		text, err := json.Marshal([]any{selection})
		if err != nil {
			return fmt.Errorf("network %s: %w", n.Options.Network, err)
		}
		annotations[annotationDefault] = string(text)
	}
	lists := map[string][]string{annotationPools4: n.Pools4, annotationPools6: n.Pools6}
	if want.IsValid() {
		lists[annotationAddrs] = []string{want.String()}
		delete(lists, annotationPools4) // the address says which one
		if _, six := find(at.records, at.records.pools, func(p pool) bool { return p.V6 && p.Network == n.ID }); six {
			lists[annotationFamily] = []string{string(model.IPv4), string(model.IPv6)}
		}
	}
	for key, list := range lists {
		if len(list) > 0 {
			text, err := json.Marshal(list)
			if err != nil {
				return fmt.Errorf("annotation %s: %w", key, err)
			}
			annotations[key] = string(text)
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
	addrs, err := at.agent.add(attachment{
		id: e.ID, namespace: n.Options.Namespace, annotations: annotations, ns: ns, mac: e.MAC,
	})
	if err != nil {
		return err
	}
	for _, a := range addrs {
		switch {
		case a.Addr().Is4() && !e.Address.IsValid():
			e.Address = a
		case a.Addr().Is6() && !e.Offered6.IsValid():
			e.Offered6 = a
		}
	}
	if !e.Address.IsValid() {
		return model.Errorf(model.CodeInvalidConf, "use one with IPv4 addresses", "network %s has no IPv4 addresses", n.name())
	}
	return nil
}

func cut(s string) (a, b string, ok bool) { return strings.Cut(s, "/") }

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
