// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// ErrNoCommand is the cause of ParseCall's error when CNI_COMMAND is absent: the plugin is run by hand.
var ErrNoCommand = errors.New("CNI_COMMAND is missing")

// The verbs of the protocol.
const (
	Add     = "ADD"
	Del     = "DEL"
	Check   = "CHECK"
	GC      = "GC"
	Status  = "STATUS"
	Version = "VERSION"
)

// Call is one execution of a plugin, as requested by its caller.
type Call struct {
	Command string
	// Request has only Network, CNIVersion and CNIPath if the verb is not about an attachment.
	Request model.Request
	// Conf is standard input: one plugin's configuration; empty for VERSION.
	Conf []byte
	// Valid are the attachments that GC leaves alone.
	Valid []model.AttachmentKey
	// NetnsOverride permits that CNI_NETNS is the caller's own namespace (CNI_NETNS_OVERRIDE).
	NetnsOverride bool
}

// ParseCall parses a call from the environment and standard input, by the rules of the reference library: all missing
// or malformed variables are reported in one error with code 4.
func ParseCall(getenv func(string) string, stdin []byte) (Call, error) {
	c := Call{Command: getenv("CNI_COMMAND")}
	if c.Command == "" {
		return c, model.Errorf(model.CodeInvalidEnv, "a container runtime sets it", "environment: %w", ErrNoCommand)
	}
	needs, ok := needed(c.Command)
	if !ok {
		return c, model.Errorf(model.CodeInvalidEnv, "one of ADD, DEL, CHECK, GC, STATUS, VERSION",
			"environment: CNI_COMMAND %q is unknown", clip(c.Command))
	}
	if c.Command == Version {
		return c, nil
	}
	if err := c.environment(getenv, needs); err != nil {
		return c, err
	}
	c.Conf = stdin
	return c, c.configuration()
}

// needed returns the variables that a verb requires.
func needed(verb string) ([]string, bool) {
	switch verb {
	case Add, Check:
		return []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"}, true
	case Del:
		return []string{"CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"}, true
	case GC, Status:
		return []string{"CNI_PATH"}, true
	case Version:
		return nil, true
	}
	return nil, false
}

func (c *Call) environment(getenv func(string) string, needs []string) error {
	var missing, bad []string
	for _, name := range needs {
		if getenv(name) == "" {
			missing = append(missing, name)
		}
	}
	check := func(name, value string, err error) {
		if value != "" && err != nil {
			bad = append(bad, fmt.Sprintf("%s %v", name, err))
		}
	}
	c.Request = model.Request{CNIPath: filepath.SplitList(getenv("CNI_PATH"))}
	if c.Command != GC && c.Command != Status {
		r := &c.Request
		r.ContainerID, r.Netns, r.IfName = getenv("CNI_CONTAINERID"), getenv("CNI_NETNS"), getenv("CNI_IFNAME")
		check("CNI_CONTAINERID", r.ContainerID, CheckWord(r.ContainerID))
		check("CNI_IFNAME", r.IfName, CheckIfName(r.IfName))
		args := getenv("CNI_ARGS")
		var err error
		r.Args, err = ParseArgs(args)
		check("CNI_ARGS", args, err)
	}
	over := getenv("CNI_NETNS_OVERRIDE")
	c.NetnsOverride = over == "1" || strings.EqualFold(over, "true")
	if len(missing) > 0 {
		bad = append([]string{"required variables missing: " + strings.Join(missing, ", ")}, bad...)
	}
	if len(bad) > 0 {
		return model.Errorf(model.CodeInvalidEnv, "", "environment: %s", strings.Join(bad, "; "))
	}
	return nil
}

// configuration parses what every verb needs from standard input, and rejects verbs that the version does not have.
func (c *Call) configuration() error {
	o, err := parseObject("network configuration", c.Conf)
	if err != nil {
		return err
	}
	var version string
	if err := errors.Join(o.get("network configuration", "name", &c.Request.Network),
		o.get("network configuration", "cniVersion", &version)); err != nil {
		return model.Errorf(model.CodeDecode, "", "%w", err)
	}
	if err := checkNetworkName(c.Request.Network); err != nil {
		return err
	}
	if c.Request.CNIVersion, err = checkVersion(version); err != nil {
		return err
	}
	since := "0.1.0"
	switch c.Command {
	case Check:
		since = "0.4.0"
	case GC, Status:
		since = "1.1.0"
	}
	if !AtLeast(c.Request.CNIVersion, since) {
		return model.Errorf(model.CodeIncompatibleVersion, "", "cniVersion %s has no %s, it came with %s",
			c.Request.CNIVersion, c.Command, since)
	}
	if c.Command == GC {
		c.Valid, err = valid(o, c.Request.Network)
	}
	return err
}

// valid reads the attachments that a GC must leave alone. "cni.dev/attachments" is the key of older libraries. A GC
// without any list would remove everything, so the key must be there.
func valid(o object, network string) ([]model.AttachmentKey, error) {
	raw, ok := o["cni.dev/valid-attachments"]
	if !ok {
		raw, ok = o["cni.dev/attachments"]
	}
	if !ok {
		return nil, model.Errorf(model.CodeInvalidConf, "an empty list declares that no attachment is valid",
			"GC: cni.dev/valid-attachments is missing")
	}
	var list []struct {
		ContainerID string `json:"containerID"`
		IfName      string `json:"ifname"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, model.Errorf(model.CodeDecode, "", "GC: cni.dev/valid-attachments: %w", err)
	}
	keys := make([]model.AttachmentKey, 0, len(list))
	for _, a := range list {
		keys = append(keys, model.AttachmentKey{Network: network, ContainerID: a.ContainerID, IfName: a.IfName})
	}
	return keys, nil
}
