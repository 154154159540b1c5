// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// CalicoMTUFile is the file to which Calico's daemon writes the MTU of pods.
const CalicoMTUFile = "/var/lib/calico/mtu"

// calicoConf is the part of the configuration that applies to the pod's interface. The other keys (Calico's datastore,
// logging) are for Calico's own programs: weft accepts and ignores them.
type calicoConf struct {
	MTU            int  `json:"mtu"`
	RequireMTUFile bool `json:"require_mtu_file"`
	Queues         int  `json:"num_queues"`
	Policy         struct {
		Type string `json:"type"`
	} `json:"policy"`
	Features struct {
		NoIPAM   bool `json:"ip_addrs_no_ipam"`
		Floating bool `json:"floating_ips"`
		Sources  bool `json:"source_prefixes"` // weft's own; Calico configures it in its daemon
	} `json:"feature_control"`
	Container struct {
		Forwarding bool `json:"allow_ip_forwarding"`
	} `json:"container_settings"`
	DefaultRoutes bool     `json:"include_default_routes"`
	Gates         []string `json:"readiness_gates"`
	PolicyTimeout int      `json:"policy_setup_timeout_seconds"`
	HostTap       *hostTap `json:"host_tap"` // weft's own

	ipam string // the type
}

// calicoKeys returns the keys that only Calico's plugin has.
func calicoKeys() []string {
	return []string{
		"mtu", "require_mtu_file", "num_queues", "policy.*", "kubernetes.*", "feature_control.ip_addrs_no_ipam",
		"feature_control.floating_ips", "feature_control.source_prefixes",
		"container_settings.allow_ip_forwarding", "include_default_routes", "readiness_gates[]", "host_tap.owner",
		"policy_setup_timeout_seconds",
		"endpoint_status_dir", "mode", "nodename", "nodename_file", "nodename_file_optional", "hostname", "ipam_lock_file",
		"datastore_type",
		"calico_api_group", "qps", "burst", "etcd_endpoints", "etcd_discovery_srv", "etcd_scheme", "etcd_key_file",
		"etcd_cert_file",
		"etcd_ca_cert_file", "etcd_authority", "log_level", "log_file_path", "log_file_max_size", "log_file_max_age",
		"log_file_max_count",
		"dataplane_options.*", "vxlan_mac_prefix", "vxlan_vni", "windows_pod_deletion_timestamp_timeout",
		"windows_use_single_network",
		"windows_disable_default_deny_all_policy", "windows_loopback_DSR",
	}
}

func readCalico(conf model.PluginConf) (calicoConf, error) {
	var c calicoConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	if err := checkMTU(conf, c.MTU); err != nil {
		return c, err
	}
	const mostQueues = 4096 // the kernel's
	bad := func(hint, format string, args ...any) error {
		return model.Errorf(model.CodeInvalidConf, hint, "plugin calico: "+format, args...)
	}
	switch {
	case c.Queues < 0 || c.Queues > mostQueues:
		return c, bad("leave it out to have 1", "num_queues %d is not between 1 and %d", c.Queues, mostQueues)
	case c.Policy.Type != "" && c.Policy.Type != "k8s":
		return c, bad(`leave it out, or write "k8s"`, "policy.type %q is not known", c.Policy.Type)
	case c.PolicyTimeout < 0:
		return c, bad("0 is no timeout", "policy_setup_timeout_seconds %d is negative", c.PolicyTimeout)
	}
	for i, gate := range c.Gates {
		if !strings.HasPrefix(gate, "http://") && !strings.HasPrefix(gate, "https://") {
			return c, bad("for example http://localhost:9099/readiness", "readiness_gates[%d] %.60q is not an HTTP URL", i, gate)
		}
	}
	c.Queues = cmp.Or(c.Queues, 1)
	section, err := ipamSection(conf)
	if err != nil {
		return c, err
	}
	if section == nil {
		return c, bad(`add "ipam": {"type": "calico-ipam"}`, "ipam.type is missing")
	}
	var typed struct {
		Type string `json:"type"`
	}
	if err := decodeAt(conf, "ipam", section, &typed); err != nil {
		return c, err
	}
	c.ipam = typed.Type
	return c, readDNS(conf).err
}

// Warnings reports settings that are probably mistakes.
func (Calico) Warnings(raw json.RawMessage) []model.Warning {
	c, err := readCalico(model.PluginConf{Type: CalicoType, Raw: raw})
	if err != nil {
		return nil // Decode reports it
	}
	var out []model.Warning
	if c.Policy.Type == "" {
		out = append(out, model.Warning{
			Field: "policy.type", Msg: "policy.type is not k8s: annotations of pods and namespaces are not read",
			Hint: `"policy": {"type": "k8s"}`,
		})
	}
	if c.PolicyTimeout > 0 {
		out = append(out, model.Warning{
			Field: "policy_setup_timeout_seconds",
			Msg:   "policy_setup_timeout_seconds has no effect: policy is enforced before a pod is attached", Hint: "leave it out",
		})
	}
	return out
}

// Gates returns the URLs that must answer before a pod is attached.
func (Calico) Gates(in Input) ([]string, error) {
	c, err := decoded(in, readCalico)
	return c.Gates, err
}

// mtuFile returns the query for Calico's MTU file unless the MTU is configured.
func (c calicoConf) mtuFile() []state.Query {
	if c.MTU != 0 {
		return nil
	}
	return []state.Query{{Space: state.Host, File: CalicoMTUFile}}
}

// mtu returns the configured MTU, else the MTU of the file, limited to what the node's tunnels can carry, else the
// node's; 0 leaves it to the kernel.
func (c calicoConf) mtu(in Input) (int, error) {
	if c.MTU != 0 {
		return c.MTU, nil
	}
	file := in.Answers[c.mtuFile()[0]]
	if !file.Found {
		if c.RequireMTUFile {
			return 0, model.Errorf(model.CodeTryAgain, "Calico's daemon writes it: is it running? Or set mtu",
				"plugin calico: %s does not exist yet", CalicoMTUFile)
		}
		return in.MTU, nil
	}
	text := strings.TrimSpace(file.Value)
	mtu, err := strconv.Atoi(text)
	if err != nil {
		return 0, model.Errorf(model.CodeInvalidConf, "it holds one number", "plugin calico: %s: %.20q is not an MTU",
			CalicoMTUFile, text)
	}
	if in.MTU != 0 && in.MTU < mtu {
		// The file may be a leftover of Calico's daemon, for the MTU of its own tunnels.
		mtu = in.MTU
	}
	return mtu, checkMTU(in.Conf, mtu)
}
