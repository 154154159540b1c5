// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Prefix is what the annotations begin with where nobody has chosen otherwise.
const Prefix = "flannel.alpha.coreos.com"

// Keys are the names of a node's annotations.
type Keys struct {
	Managed    string // kube-subnet-manager: "true" on the nodes that take part
	Type       string // backend-type
	Data       string // backend-data
	DataV6     string // backend-v6-data
	PublicIP   string // public-ip
	PublicIPv6 string // public-ipv6
	// Not flannel's: what a node of weft says of its end of VXLAN tunnels where backend-data does not. They begin as the
	// others do, since that is what an agent may write to its node.
	Vtep   string // weft-vtep
	VtepV6 string // weft-v6-vtep
	// Written by administrators: the address that is to be published, and the address that the node has for others.
	Overwrite   string // public-ip-overwrite
	OverwriteV6 string // public-ipv6-overwrite
	NodeIP      string // node-public-ip
	NodeIPv6    string // node-public-ipv6
}

var annotationPrefix = regexp.MustCompile(`^(?:[a-z0-9_-]+\.)+[a-z0-9_-]+/(?:[a-z0-9._-]+-)?$`)

// KeysOf gives the names under a prefix. One without a slash is a domain; behind a slash names may begin alike, and a
// "-" is put there where it is missing.
func KeysOf(prefix string) (Keys, error) {
	p := prefix
	if !strings.Contains(p, "/") {
		p += "/"
	}
	if !strings.HasSuffix(p, "/") && !strings.HasSuffix(p, "-") {
		p += "-"
	}
	if !annotationPrefix.MatchString(p) {
		return Keys{}, model.Faultf(model.CodeInvalidConf,
			"write a domain in lower case, or domain/beginning: flannel.alpha.coreos.com",
			"kube-annotation-prefix %q begins no annotation", prefix)
	}
	return keysUnder(p), nil
}

// Begin is what all names under a prefix begin with.
func Begin(prefix string) (string, error) {
	k, err := KeysOf(prefix)
	return strings.TrimSuffix(k.Managed, "kube-subnet-manager"), err
}

// DefaultKeys are those under Prefix.
func DefaultKeys() Keys { return keysUnder(Prefix + "/") }

func keysUnder(p string) Keys {
	return Keys{
		Managed: p + "kube-subnet-manager", Type: p + "backend-type", Data: p + "backend-data", DataV6: p + "backend-v6-data",
		Vtep: p + "weft-vtep", VtepV6: p + "weft-v6-vtep",
		PublicIP: p + "public-ip", PublicIPv6: p + "public-ipv6", Overwrite: p + "public-ip-overwrite",
		OverwriteV6: p + "public-ipv6-overwrite",
		NodeIP:      p + "node-public-ip", NodeIPv6: p + "node-public-ipv6",
	}
}

// Read is what a node has published; nil when it takes no part in flannel's network.
func (k Keys) Read(annotations map[string]string) (*model.Published, error) {
	if annotations[k.Managed] != "true" {
		return nil, nil
	}
	p := &model.Published{
		Backend: annotations[k.Type], Data: data(annotations[k.Data]), DataV6: data(annotations[k.DataV6]),
	}
	for _, key := range []string{k.PublicIP, k.PublicIPv6} {
		text := annotations[key]
		if text == "" {
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Unmap().Is4() != (key == k.PublicIP) {
			return nil, model.Faultf(model.CodeInvalidConf, "correct the annotation; the node's daemon writes it when it starts",
				"annotation %s %q is no address of its family", key, text)
		}
		p.Addrs = append(p.Addrs, a.Unmap())
	}
	for key, text := range map[string]string{k.Data: p.Data, k.DataV6: p.DataV6} {
		if text != "" && !json.Valid([]byte(text)) {
			return nil, model.Faultf(model.CodeInvalidConf, "correct the annotation; the node's daemon writes it when it starts",
				"annotation %s %q is no JSON", key, short([]byte(text)))
		}
	}
	return p, nil
}

// ReadVtep is what a node says of its end of VXLAN tunnels beside Read.
func (k Keys) ReadVtep(annotations map[string]string) model.VtepWords {
	return model.VtepWords{V4: annotations[k.Vtep], V6: annotations[k.VtepV6]}
}

// WriteVtep is the same as annotations.
func (k Keys) WriteVtep(w model.VtepWords) map[string]string {
	out := map[string]string{}
	for key, text := range map[string]string{k.Vtep: w.V4, k.VtepV6: w.V6} {
		if text != "" {
			out[key] = text
		}
	}
	return out
}

// data is a back end's word; "null" is what one without a word writes.
func data(text string) string {
	if text == "null" {
		return ""
	}
	return text
}

// Write is what a node publishes, as annotations. What an administrator has overwritten comes from have, the node's own
// annotations. Keys of a family that is off are not named, so that they stay as they are.
func (k Keys) Write(p model.Published, have map[string]string) map[string]string {
	out := map[string]string{k.Managed: "true", k.Type: p.Backend}
	for _, f := range []struct {
		v4                         bool
		ip, overwrite, key, spoken string
	}{
		{true, k.PublicIP, k.Overwrite, k.Data, p.Data},
		{false, k.PublicIPv6, k.OverwriteV6, k.DataV6, p.DataV6},
	} {
		addr, ok := addrOf(p.Addrs, f.v4)
		if !ok {
			continue
		}
		out[f.ip], out[f.key] = addr.String(), f.spoken
		if have[f.overwrite] != "" {
			out[f.ip] = have[f.overwrite]
		}
		if f.spoken == "" {
			out[f.key] = "null"
		}
	}
	return out
}

// Public is what a node is to publish instead of its underlay's addresses, by its annotations: one that overwrites
// comes before one that the node has for others.
func (k Keys) Public(annotations map[string]string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, keys := range [][2]string{{k.Overwrite, k.NodeIP}, {k.OverwriteV6, k.NodeIPv6}} {
		for _, key := range keys {
			text := annotations[key]
			if text == "" {
				continue
			}
			a, err := netip.ParseAddr(text)
			if err != nil || a.Zone() != "" || a.Unmap().Is4() != (keys[0] == k.Overwrite) {
				return nil, model.Faultf(model.CodeInvalidConf, "correct the annotation, or take it away",
					"annotation %s %q is no address of its family", key, text)
			}
			out = append(out, a.Unmap())
			break
		}
	}
	return out, nil
}

// External is what the node's annotations say its addresses are for others, before any flag.
func (k Keys) External(annotations map[string]string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, key := range []string{k.NodeIP, k.NodeIPv6} {
		text := annotations[key]
		if text == "" {
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Unmap().Is4() != (key == k.NodeIP) {
			return nil, model.Faultf(model.CodeInvalidConf, "correct the annotation, or take it away",
				"annotation %s %q is no address of its family", key, text)
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}

// addrOf is the first address of a family.
func addrOf(addrs []netip.Addr, v4 bool) (netip.Addr, bool) {
	for _, a := range addrs {
		if a.Is4() == v4 {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// VtepData is vxlan's word.
type VtepData struct {
	VNI     int    `json:"VNI"`
	VtepMAC string `json:"VtepMAC"`
}

// String is the word in JSON.
func (v VtepData) String() string { return fmt.Sprintf(`{"VNI":%d,"VtepMAC":%q}`, v.VNI, v.VtepMAC) }
