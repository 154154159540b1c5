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

// Prefix is the default prefix of the annotations.
const Prefix = "flannel.alpha.coreos.com"

// Keys are the names of a node's annotations.
type Keys struct {
	Managed    string // kube-subnet-manager: "true" on the nodes that take part
	Type       string // backend-type
	Data       string // backend-data
	DataV6     string // backend-v6-data
	PublicIP   string // public-ip
	PublicIPv6 string // public-ipv6
	// weft's own: the VTEP of a node where backend-data does not have it. They have the same prefix, which is what an
	// agent may write to its Node object.
	VTEP   string // weft-vtep
	VTEPV6 string // weft-v6-vtep
	// Written by administrators: the address to publish, and the node's external address.
	Overwrite   string // public-ip-overwrite
	OverwriteV6 string // public-ipv6-overwrite
	NodeIP      string // node-public-ip
	NodeIPv6    string // node-public-ipv6
}

// KeysOf returns the names under a prefix. One without a slash is a domain; after a slash, names may have a common
// beginning, and a missing "-" is added.
func KeysOf(prefix string) (Keys, error) {
	p := prefix
	if !strings.Contains(p, "/") {
		p += "/"
	}
	if !strings.HasSuffix(p, "/") && !strings.HasSuffix(p, "-") {
		p += "-"
	}
	// Compiled here: programs that need no prefix would compile it at their start.
	if !regexp.MustCompile(`^(?:[a-z0-9_-]+\.)+[a-z0-9_-]+/(?:[a-z0-9._-]+-)?$`).MatchString(p) {
		return Keys{}, model.Errorf(model.CodeInvalidConf,
			"write a domain in lower case, or domain/beginning: flannel.alpha.coreos.com",
			"kube-annotation-prefix %q begins no annotation", prefix)
	}
	return keysUnder(p), nil
}

// Begin returns the beginning of all names under a prefix.
func Begin(prefix string) (string, error) {
	k, err := KeysOf(prefix)
	return strings.TrimSuffix(k.Managed, "kube-subnet-manager"), err
}

// DefaultKeys returns the names under Prefix.
func DefaultKeys() Keys { return keysUnder(Prefix + "/") }

func keysUnder(p string) Keys {
	return Keys{
		Managed: p + "kube-subnet-manager", Type: p + "backend-type", Data: p + "backend-data", DataV6: p + "backend-v6-data",
		VTEP: p + "weft-vtep", VTEPV6: p + "weft-v6-vtep",
		PublicIP: p + "public-ip", PublicIPv6: p + "public-ipv6", Overwrite: p + "public-ip-overwrite",
		OverwriteV6: p + "public-ipv6-overwrite",
		NodeIP:      p + "node-public-ip", NodeIPv6: p + "node-public-ipv6",
	}
}

// Read returns what a node has published; nil if it is not part of flannel's network.
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
			return nil, model.Errorf(model.CodeInvalidConf, "correct the annotation; the node's daemon writes it when it starts",
				"annotation %s %q is no address of its family", key, text)
		}
		p.Addrs = append(p.Addrs, a.Unmap())
	}
	for key, text := range map[string]string{k.Data: p.Data, k.DataV6: p.DataV6} {
		if text != "" && !json.Valid([]byte(text)) {
			return nil, model.Errorf(model.CodeInvalidConf, "correct the annotation; the node's daemon writes it when it starts",
				"annotation %s %q is no JSON", key, short([]byte(text)))
		}
	}
	return p, nil
}

// ReadVTEP returns a node's VTEP, which Read does not have.
func (k Keys) ReadVTEP(annotations map[string]string) model.VTEPData {
	return model.VTEPData{V4: annotations[k.VTEP], V6: annotations[k.VTEPV6]}
}

// WriteVTEP returns the VTEP as annotations.
func (k Keys) WriteVTEP(w model.VTEPData) map[string]string {
	out := map[string]string{}
	for key, text := range map[string]string{k.VTEP: w.V4, k.VTEPV6: w.V6} {
		if text != "" {
			out[key] = text
		}
	}
	return out
}

// data returns a backend's data; "null" is that of a backend without data.
func data(text string) string {
	if text == "null" {
		return ""
	}
	return text
}

// Write returns what a node publishes, as annotations. What an administrator has overwritten comes from have, the
// node's own annotations. Keys of a family that is off are not named, so that they stay as they are.
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

// Public returns the addresses that a node publishes instead of its underlay's, by its annotations: an overwritten one
// precedes an external one.
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
				return nil, model.Errorf(model.CodeInvalidConf, "correct the annotation, or remove it",
					"annotation %s %q is no address of its family", key, text)
			}
			out = append(out, a.Unmap())
			break
		}
	}
	return out, nil
}

// External returns the node's external addresses in its annotations, which precede those of flags.
func (k Keys) External(annotations map[string]string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, key := range []string{k.NodeIP, k.NodeIPv6} {
		text := annotations[key]
		if text == "" {
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Unmap().Is4() != (key == k.NodeIP) {
			return nil, model.Errorf(model.CodeInvalidConf, "correct the annotation, or remove it",
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

// VTEPData is the backend data of vxlan.
type VTEPData struct {
	VNI     int    `json:"VNI"`
	VTEPMAC string `json:"VtepMAC"`
}

// String returns the data as JSON.
func (v VTEPData) String() string { return fmt.Sprintf(`{"VNI":%d,"VtepMAC":%q}`, v.VNI, v.VTEPMAC) }
