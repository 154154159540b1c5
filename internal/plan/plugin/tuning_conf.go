// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// tuningConf is the configuration as written.
type tuningConf struct {
	Sysctl   json.RawMessage `json:"sysctl"`
	MAC      string          `json:"mac"`
	MTU      int             `json:"mtu"`
	Promisc  bool            `json:"promisc"`
	AllMulti *bool           `json:"allmulti"`
	TxQLen   *int            `json:"txQLen"`
	DataDir  string          `json:"dataDir"`
	Args     struct {
		CNI struct {
			Sysctl   json.RawMessage `json:"sysctl"`
			MAC      *string         `json:"mac"`
			MTU      *int            `json:"mtu"`
			Promisc  *bool           `json:"promisc"`
			AllMulti *bool           `json:"allmulti"`
			TxQLen   *int            `json:"txQLen"`
		} `json:"cni"`
	} `json:"args"`
	RuntimeConfig struct {
		MAC string `json:"mac"`
	} `json:"runtimeConfig"`
}

// tuning is the configuration after the precedence of its sources is resolved.
type tuning struct {
	tuningConf
	mac     state.MAC
	sysctls []setting
}

// setting is one sysctl: its key as written, and its path below /proc/sys.
type setting struct{ key, path, value string }

// changesLink reports whether the configuration changes the interface itself.
func (c tuning) changesLink() bool {
	return !c.mac.IsZero() || c.MTU != 0 || c.Promisc || c.AllMulti != nil || c.TxQLen != nil
}

// readTuning parses and validates a configuration for a request.
func readTuning(in Input) (tuning, error) {
	c, err := decoded(in, decodeTuning)
	if err != nil {
		return tuning{}, err
	}
	return c.resolve(in.Conf, in.Request)
}

func decodeTuning(conf model.PluginConf) (c tuningConf, err error) {
	err = decode(conf, &c)
	return c, err
}

// resolve applies the precedence of the sources for a request and validates the result. args.cni takes precedence.
func (t tuningConf) resolve(conf model.PluginConf, r model.Request) (tuning, error) {
	c := tuning{tuningConf: t}
	args := c.Args.CNI
	if args.MTU != nil {
		c.MTU = *args.MTU
	}
	if args.TxQLen != nil {
		c.TxQLen = args.TxQLen
	}
	if args.Promisc != nil {
		c.Promisc = *args.Promisc
	}
	if args.AllMulti != nil {
		c.AllMulti = args.AllMulti
	}
	if err := checkMTU(conf, c.MTU); err != nil {
		return c, err
	}
	const mostQueue = 1<<31 - 1
	if c.TxQLen != nil && (*c.TxQLen < 0 || *c.TxQLen > mostQueue) {
		return c, model.Errorf(model.CodeInvalidConf, "it is a number of packets",
			"plugin tuning: txQLen %d is not between 0 and %d",
			*c.TxQLen, mostQueue)
	}
	if c.DataDir != "" && !path.IsAbs(c.DataDir) {
		return c, model.Errorf(model.CodeInvalidConf, "an absolute path, or nothing for "+tuningDir,
			"plugin tuning: dataDir %q is not absolute", c.DataDir)
	}
	if err := c.readMAC(conf, r); err != nil {
		return c, err
	}
	return c, c.readSysctls(r)
}

// readMAC resolves the MAC address, from mac, CNI_ARGS, runtimeConfig and args.cni; the last one wins.
func (c *tuning) readMAC(conf model.PluginConf, r model.Request) error {
	field, value := "mac", c.MAC
	if v, _ := r.Arg("MAC"); v != "" {
		field, value = "CNI_ARGS MAC", v
	}
	if c.RuntimeConfig.MAC != "" {
		field, value = "runtimeConfig.mac", c.RuntimeConfig.MAC
	}
	if c.Args.CNI.MAC != nil {
		field, value = "args.cni.mac", *c.Args.CNI.MAC
	}
	if value == "" {
		return nil
	}
	mac, err := readMAC(conf, field, value)
	c.mac = mac
	return err
}

// readSysctls parses the sysctls, with args.cni taking precedence, and sorts them by path.
func (c *tuning) readSysctls(r model.Request) error {
	list, err := readSettings("sysctl", c.Sysctl, r)
	if err != nil {
		return err
	}
	more, err := readSettings("args.cni.sysctl", c.Args.CNI.Sysctl, r)
	if err != nil {
		return err
	}
	for _, s := range more {
		if i := slices.IndexFunc(list, func(o setting) bool { return o.path == s.path }); i >= 0 {
			list[i] = s
			continue
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b setting) int { return strings.Compare(a.path, b.path) })
	c.sysctls = list
	return nil
}

// readSettings parses an object of sysctls. Encoding/json would accept duplicate keys and use the last one.
func readSettings(field string, raw json.RawMessage, r model.Request) ([]setting, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, model.Errorf(model.CodeDecode, `an object: {"net.core.somaxconn": "500"}`,
			"plugin tuning: %s %s is not an object", field, raw)
	}
	var list []setting
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, model.Errorf(model.CodeDecode, "", "plugin tuning: %s: %w", field, err)
		}
		s := setting{key: key.(string)}
		var value any
		if err := dec.Decode(&value); err != nil {
			return nil, model.Errorf(model.CodeDecode, "", "plugin tuning: %s: %w", field, err)
		}
		text, ok := value.(string)
		if !ok {
			return nil, model.Errorf(model.CodeDecode, "write it in quotes", "plugin tuning: %s: the value of %q is not a string",
				field, s.key)
		}
		s.value = text
		if s.path, err = settingPath(field, s.key, r.IfName); err != nil {
			return nil, err
		}
		for _, o := range list {
			if o.path == s.path {
				return nil, model.Errorf(model.CodeInvalidConf, "leave one out",
					"plugin tuning: %s: %q and %q are the same setting", field, o.key, s.key)
			}
		}
		list = append(list, s)
	}
	return list, nil
}

// settingPath returns the path of a sysctl below /proc/sys. A key whose first separator is a slash is a path already,
// and its dots are part of an interface name (eth0.100); otherwise dots are separators. IFNAME is replaced by the
// interface.
func settingPath(field, key, ifName string) (string, error) {
	name := key
	if i := strings.IndexAny(key, "./"); i < 0 || key[i] == '.' {
		name = strings.ReplaceAll(key, ".", "/")
	}
	if ifName != "" {
		name = strings.Replace(name, "IFNAME", ifName, 1)
	}
	if path.Clean(name) != name || !strings.HasPrefix(name, "net/") || strings.ContainsRune(name, 0) {
		return "", model.Errorf(model.CodeInvalidConf, "for example net.ipv4.conf.IFNAME.arp_filter",
			"plugin tuning: %s: %q is not a sysctl below net", field, key)
	}
	return name, nil
}

// ofLink reports whether a sysctl is one of the interface.
func ofLink(name, link string) bool {
	for _, family := range []string{"ipv4", "ipv6"} {
		for _, kind := range []string{"conf", "neigh"} {
			if strings.HasPrefix(name, "net/"+family+"/"+kind+"/"+link+"/") {
				return true
			}
		}
	}
	return false
}

// allowed returns an error if the node's allow list does not match a sysctl. An expression may match any part of the
// key.
func (c tuning) allowed(in Input) error {
	answer := in.Answers[allowList()]
	if !answer.Found || len(c.sysctls) == 0 {
		return nil
	}
	var list []*regexp.Regexp
	for line := range strings.Lines(answer.Value) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		re, err := regexp.Compile(line)
		if err != nil {
			return model.Errorf(model.CodeInvalidConf, "", "plugin tuning: %s: %w", AllowList, err)
		}
		list = append(list, re)
	}
	for _, s := range c.sysctls {
		if !slices.ContainsFunc(list, func(re *regexp.Regexp) bool { return re.MatchString(s.key) }) {
			return model.Errorf(model.CodeInvalidConf, "the node's administrator can add it to the file",
				"plugin tuning: sysctl %q is not allowed by %s",
				s.key, AllowList)
		}
	}
	return nil
}

// Warnings reports settings that are probably mistakes.
func (Tuning) Warnings(conf json.RawMessage) []model.Warning {
	c, err := readTuning(Input{Conf: model.PluginConf{Type: "tuning", Raw: conf}})
	if err != nil {
		return nil // Decode reports it
	}
	var out []model.Warning
	if c.MTU != 0 && c.MTU < leastIPv6 {
		out = append(out, model.Warning{
			Field: "mtu", Msg: "with an mtu below 1280 the interface has no IPv6", Hint: "IPv4 works",
		})
	}
	if c.DataDir != "" && !c.changesLink() {
		out = append(out, model.Warning{
			Field: "dataDir", Msg: "dataDir has no effect on settings: it is about the interface", Hint: "leave it out",
		})
	}
	return out
}
