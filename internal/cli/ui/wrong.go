// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/goflag"
	"github.com/weft-net/weft/internal/model"
)

// This file translates the errors of cobra, pflag and strconv, which name Go's types and functions and have no hint.

// Misusef returns a usage error. It should name the field and the value; the hint should be a command line to type.
func Misusef(hint, format string, args ...any) error {
	return UsageError(model.Errorf(model.CodeInvalidConf, hint, format, args...))
}

// withHint adds a hint to a usage error that has none.
func withHint(cmd *cobra.Command, err error) error {
	var fault *model.Error
	if !IsUsageError(err) || errors.As(err, &fault) && fault.Hint != "" {
		return err
	}
	return model.Errorf(model.CodeInvalidConf, helpHint(cmd), "%w", err)
}

func helpHint(cmd *cobra.Command) string {
	return fmt.Sprintf("`%s --help` describes the command", cmd.CommandPath())
}

// argsError translates cobra's error about the number of arguments. Cobra returns only a message.
func argsError(cmd *cobra.Command, args []string, err error) error {
	hint := usageHint(cmd)
	counts := regexp.MustCompile(`(\d+) arg\(s\), (?:only )?received (\d+)$`).FindStringSubmatch(err.Error())
	switch {
	case counts != nil:
		want, _ := strconv.Atoi(counts[1])
		if want < len(args) {
			return Misusef(hint, "unexpected argument %q", args[want])
		}
		return Misusef(hint, "argument %s is missing", argName(cmd, len(args)))
	case strings.HasPrefix(err.Error(), "unknown command ") && len(args) > 0 && !cmd.HasSubCommands():
		return Misusef(hint, "unexpected argument %q", args[0])
	}
	return UsageError(err)
}

// usageHint returns a command line to type: the usage if it has no names for values, or else the first example.
func usageHint(cmd *cobra.Command) string {
	usage := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	example, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	if example != "" && regexp.MustCompile(`[A-Z]{2}`).MatchString(usage) {
		return "for example `" + example + "`"
	}
	return "write `" + usage + "`"
}

// argName returns the name of an argument in the usage line.
func argName(cmd *cobra.Command, at int) string {
	var names []string
	for _, field := range strings.Fields(cmd.Use)[1:] {
		if field == "--" || field == "[flags]" {
			continue
		}
		if strings.HasPrefix(field, "-") {
			break
		}
		names = append(names, strings.TrimSuffix(strings.TrimSuffix(field, "..."), "…"))
	}
	if at < len(names) {
		return names[at]
	}
	return strconv.Itoa(at + 1)
}

// requiredError checks for required flags and for flags that exclude each other.
func requiredError(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if err == nil && !f.Changed && slices.Contains(f.Annotations[cobra.BashCompOneRequiredFlag], "true") {
			err = Misusef("add "+sample(f), "%s is missing", dashed(f))
		}
	})
	if err != nil {
		return err
	}
	if err = cmd.ValidateFlagGroups(); err == nil {
		return nil
	}
	// The last brackets of cobra's message list the flags.
	m := regexp.MustCompile(`\[([^\[\]]*)\][^\[\]]*$`).FindStringSubmatch(err.Error())
	if m == nil {
		return UsageError(err)
	}
	flags := strings.Fields(m[1])
	switch {
	case strings.Contains(err.Error(), "none of the others"):
		return Misusef("leave out all but one", "--%s exclude each other", strings.Join(flags, " and --"))
	case strings.Contains(err.Error(), "missing"):
		return Misusef("add --"+strings.Join(flags, " and --"), "--%s is missing", strings.Join(flags, " and --"))
	}
	return Misusef("add --"+strings.Join(flags, " or --"), "--%s is missing", strings.Join(flags, " or --"))
}

// flagError translates an error about a flag. An unknown command before the flag takes precedence.
func flagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return UsageError(unknownCommand(cmd, words[0]))
	}
	var unknown *pflag.NotExistError
	var without *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown)
	case errors.As(err, &without):
		return Misusef("for example "+sample(without.GetFlag()), "%s has no value", dashed(without.GetFlag()))
	case errors.As(err, &invalid):
		return invalidValue(invalid)
	case errors.As(err, &syntax):
		return Misusef(fmt.Sprintf("`%s --help` lists the flags", cmd.CommandPath()), "%q is not a flag", syntax.GetSpecifiedFlag())
	}
	return UsageError(err)
}

// unknownFlag suggests the nearest flag of the command.
func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	hint := fmt.Sprintf("`%s --help` lists the flags", cmd.CommandPath())
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	// After one dash pflag parses short flags: -nodes is a long flag that lacks a dash.
	written, name := "--"+unknown.GetSpecifiedName(), unknown.GetSpecifiedName()
	if letters := unknown.GetSpecifiedShortnames(); letters != "" {
		written = "-" + letters
		name, _, _ = strings.Cut(letters, "=")
	}
	near := cni.Nearest(name, names)
	if slices.Contains(names, name) {
		near = name
	}
	if len(name) > 1 && near != "" {
		hint = fmt.Sprintf("did you mean --%s?", near)
	}
	return Misusef(hint, "unknown flag %s", written)
}

// invalidValue says which values the flag takes.
func invalidValue(invalid *pflag.InvalidValueError) error {
	f := invalid.GetFlag()
	hint := "for example " + sample(f)
	if errors.Is(invalid, strconv.ErrRange) {
		return Misusef(hint, "%s %q is out of range", dashed(f), invalid.GetValue())
	}
	kind := f.Value.Type()
	if values, ok := f.Value.(interface{ Choices() string }); ok {
		if fault := (*model.Error)(nil); errors.As(invalid, &fault) {
			return Misusef(fault.Hint, "%s: %w", dashed(f), fault)
		}
		if strings.Contains(values.Choices(), "json") {
			hint = "for example -o json"
		}
		return Misusef(hint, "%s %q is not %s", dashed(f), invalid.GetValue(), values.Choices())
	}
	is := map[string]string{
		"bool": "true or false", "duration": "a duration with a unit (ms, s, m or h)", "ip": "an IP address",
		"ipNet": "a prefix", "stringToString": "NAME=VALUE",
	}[strings.TrimSuffix(kind, "Slice")]
	switch {
	case strings.HasPrefix(kind, "uint"):
		is = "a whole number, 0 or more"
	case strings.HasPrefix(kind, "int"), kind == "count":
		is = "a whole number"
	case strings.HasPrefix(kind, "float"):
		is = "a number"
	case f.Name == "log-level":
		is = "debug, info, warn or error"
	}
	if is == "" {
		return Misusef(hint, "%s %q: %w", dashed(f), invalid.GetValue(), errors.Unwrap(invalid))
	}
	return Misusef(hint, "%s %q is not %s", dashed(f), invalid.GetValue(), is)
}

// sample returns a flag with an example value, the default if there is one.
func sample(f *pflag.Flag) string {
	if f.Value.Type() == "bool" {
		return dashed(f) + "=true"
	}
	return dashed(f) + " " + sampleValue(f)
}

// sampleValue returns a value that the flag accepts.
func sampleValue(f *pflag.Flag) string {
	value := strings.Trim(f.DefValue, "[]")
	if value != "" && value != "0" && value != "0s" {
		return value
	}
	if value := sampleByName(f.Name); value != "" {
		return value
	}
	kind, _ := pflag.UnquoteUsage(f)
	if value := sampleByKind(kind); value != "" {
		return value
	}
	switch typ := f.Value.Type(); {
	case strings.HasPrefix(typ, "int"), strings.HasPrefix(typ, "uint"), strings.HasPrefix(typ, "float"):
		return "1"
	case strings.HasPrefix(typ, "duration"):
		return "30s"
	}
	return kind
}

// sampleByName returns a value for flags whose name says more than their metavariable.
func sampleByName(name string) string {
	return map[string]string{
		"addresses": "pools", "append": "quiet", "bin-dir": "/opt/cni/bin", "by": "calico", "capability-args": "{}",
		"chain": "/etc/cni/net.d/00-weft.conflist", "cni-args": "K8S_POD_NAME=web", "cni-bin-dir": "/opt/cni/bin",
		"cluster-dns": "10.43.0.10", "conf-dir": "/etc/cni/net.d", "config": "/etc/weft/weft.yaml", "conflist": "-",
		"container-id": "web-1", "direct-subnet": "24", "disk": "root=disk.img", "engines": "weft", "etcd": "/usr/bin/etcd",
		"external": "192.0.2.1:443",
		"flanneld": "/usr/bin/flanneld", "for": "router", "from": "examples", "grace": "30s", "initrd": "/boot/initrd.img",
		"join": "redirect", "junit": "report.xml", "kernel": "/boot/vmlinuz", "kubeconfig": "/etc/kubernetes/admin.conf",
		"mac": "02:00:00:00:00:01", "markdown": "weft=/opt/cni/bin", "memory": "256", "metrics-address": "127.0.0.1:9119",
		"netns": "/run/netns/pod1", "only": "pods,mtu", "network": "macvlan-conf", "nic": "default,mtu=1450", "node": "node1",
		"context": "admin", "namespace": "shop", "peer-bin-dir": "/opt/cni/bin", "pod": "web", "pod-cidr": "10.42.0.0/24",
		"ready-file": "/run/weft/ready",
		"root":       "/proc/1/root", "search": "cluster.local", "socket": "/run/weft/agent.sock", "store-dir": "examples",
		"tests": "connect", "valid": "web-1/eth0",
	}[name]
}

// sampleByKind returns a value for a metavariable.
func sampleByKind(kind string) string {
	return map[string]string{
		"ADDRESS": "10.42.0.7", "DESIGN": "pod", "KEY=VALUE": "mode=multus", "DIR": "/tmp", "FILE": "/dev/stdin", "NAME": "web",
		"NAMESPACE/NAME": "default/web", "NAME=VALUE": "LANG=C", "NETWORK=ADDRESS": "blue=0000:3b:02.1", "NODE|POD": "node1",
		"PLUGIN": "bridge", "PLUGIN=TYPE": "weft-direct=direct", "POOL": "blue", "PROGRAM": "/usr/local/bin/weft-agent",
		"SOCKET": "auto", "SRC,DST": "shop/web,shop/db:5432", "IMAGE": "localhost/weft-guest:dev",
		"NAME:TAG": "localhost/weft-guest:dev", "POD": "shop/web", "VM": "shop/db", "SERVICE": "shop/db",
		"NAMESPACE": "shop", "WORKLOAD": "shop/web", "STATE": "established", "LEVEL": "flows", "SELECTOR": "app=web", "PORT": "443", "NETWORK": "shop/fast", "NODE": "node1",
		"VERDICT": "denied", "PROTOCOL": "tcp", "REASON": "IP_RPFILTER", "KIND": "new", "TIME": "5m",
		"URL": "http://127.0.0.1:9119", "CONTAINERID/IFNAME": "web-1/eth0",
		"ADDRESS/LENGTH[,gateway=ADDRESS]": "10.244.1.5/24,gateway=10.244.1.1", "LINK[,KEY=VALUE…]": "eth1,mtu=9000",
	}[kind]
}

// dashed returns a flag with its dashes.
func dashed(f *pflag.Flag) string {
	if len(f.Name) == 1 {
		return "-" + f.Name
	}
	return "--" + f.Name
}

// FlagSetError returns the usage error for an error of package flag.
func FlagSetError(command string, flags *flag.FlagSet, err error) error {
	return UsageError(goflag.Error(command, flags, err))
}

// FileError returns the error for a file that the command line names: what the file is, its path as typed, and why it
// cannot be used. The hint should be a path to type.
func FileError(hint, what, path string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) { // it has the path again, and the name of the system call
		err = p.Err
	}
	return model.Errorf(model.CodeIO, hint, "%s %q: %w", what, path, err)
}
