// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/etcd"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/model"
)

// calicoctlConfig is the part of calicoctl's configuration about an etcd.
type calicoctlConfig struct {
	Kind string `json:"kind"`
	Spec struct {
		DatastoreType    string `json:"datastoreType"`
		EtcdEndpoints    string `json:"etcdEndpoints"`
		EtcdDiscoverySrv string `json:"etcdDiscoverySrv"`
		EtcdUsername     string `json:"etcdUsername"`
		EtcdPassword     string `json:"etcdPassword"`
		EtcdKeyFile      string `json:"etcdKeyFile"`
		EtcdCertFile     string `json:"etcdCertFile"`
		EtcdCACertFile   string `json:"etcdCACertFile"`
		EtcdKey          string `json:"etcdKey"`
		EtcdCert         string `json:"etcdCert"`
		EtcdCACert       string `json:"etcdCACert"`
	} `json:"spec"`
}

// etcdImport is an import from Calico's etcd.
type etcdImport struct {
	controller.Import
	policies []store.Object
	file     string // gets the policies; empty: they are not written
}

// Apply imports the addresses, and writes the policies to the file.
func (i etcdImport) Apply(ctx context.Context, objects store.Objects) error {
	if i.file == "" {
		return i.Import.Apply(ctx, objects)
	}
	var text bytes.Buffer
	for _, o := range i.policies {
		one, err := yaml.JSONToYAML(o.Raw)
		if err != nil {
			return fmt.Errorf("%s: %w", o.Key, err)
		}
		fmt.Fprintf(&text, "---\n%s", one)
	}
	// It is never written over: it may have been edited.
	f, err := os.OpenFile(i.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return ui.FileError("name a file that can be created", "--calico-policies", i.file, err)
	}
	_, err = f.Write(text.Bytes())
	if err = errors.Join(err, f.Close()); err == nil {
		err = i.Import.Apply(ctx, objects)
	}
	if err != nil { // so that the command can be repeated
		return errors.Join(err, os.Remove(i.file))
	}
	return nil
}

// planCalicoEtcd plans an import from the etcd in calicoctl's configuration. The pools become weft's own: Kubernetes
// has none of Calico's whose changes they could follow. policies is the file for the policies, if any.
func planCalicoEtcd(ctx context.Context, objects store.Objects, file, policies string) (etcdImport, error) {
	access, err := readCalicoctlConfig(file)
	if err != nil {
		return etcdImport{}, err
	}
	values, err := etcd.Values(ctx, etcd.Config{
		Access: access, Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
	}, calico.EtcdPrefixes())
	if err != nil {
		return etcdImport{}, model.Errorf(model.CodeTryAgain, "compare with `calicoctl get ippools`",
			"--calico-config %q: spec.etcdEndpoints %s: %w", file, strings.Join(access.Endpoints, ","), err)
	}
	found, err := calico.ReadEtcd(values)
	if err != nil {
		return etcdImport{}, err
	}
	if len(found.Objects) == 0 {
		return etcdImport{}, model.Errorf(model.CodeInvalidConf, "compare with `calicoctl get ippools`",
			"--calico-config %q: etcd %s has no pools of Calico", file, strings.Join(access.Endpoints, ","))
	}
	plan, err := controller.PlanCalico(ctx, store.Overlay(objects, calico.Kinds(), found.Objects), rand.Reader)
	if err != nil {
		return etcdImport{}, err
	}
	warnings, err := found.Warnings(ctx, objects, policies != "")
	if err != nil {
		return etcdImport{}, err
	}
	plan.Warnings = append(plan.Warnings, warnings...)
	return etcdImport{plan.Independent(), found.Policies, policies}, nil
}

// readCalicoctlConfig reads how calicoctl connects to Calico's etcd.
func readCalicoctlConfig(file string) (etcd.Access, error) {
	invalid := func(hint, format string, args ...any) (etcd.Access, error) {
		return etcd.Access{}, model.Errorf(model.CodeInvalidConf, hint, "--calico-config %q: "+format, append([]any{file}, args...)...)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return etcd.Access{}, ui.FileError("calicoctl's is /etc/calico/calicoctl.cfg", "--calico-config", file, err)
	}
	var c calicoctlConfig
	if err := yaml.Unmarshal(text, &c); err != nil {
		return invalid("compare with calicoctl's reference", "%w", err)
	}
	s := c.Spec
	switch {
	case c.Kind != "CalicoAPIConfig":
		return invalid("name a configuration of calicoctl", "kind %q is not CalicoAPIConfig", c.Kind)
	case s.DatastoreType != "etcdv3":
		return invalid("leave --calico-config out: the objects are read from Kubernetes",
			"spec.datastoreType %q is not etcdv3", s.DatastoreType)
	case s.EtcdDiscoverySrv != "":
		return invalid("write spec.etcdEndpoints", "spec.etcdDiscoverySrv %q is not supported", s.EtcdDiscoverySrv)
	case s.EtcdKey+s.EtcdCert+s.EtcdCACert != "":
		return invalid("write them to files: spec.etcdKeyFile, etcdCertFile and etcdCACertFile",
			"spec.etcdKey, etcdCert and etcdCACert are not supported")
	}
	access := etcd.Access{
		Prefix: calico.EtcdPrefix, KeyFile: s.EtcdKeyFile, CertFile: s.EtcdCertFile, CAFile: s.EtcdCACertFile,
		Username: s.EtcdUsername, Password: s.EtcdPassword,
	}
	for endpoint := range strings.SplitSeq(s.EtcdEndpoints, ",") {
		if endpoint = strings.TrimSpace(endpoint); endpoint != "" {
			access.Endpoints = append(access.Endpoints, endpoint)
		}
	}
	if len(access.Endpoints) == 0 {
		return invalid("write for example https://10.0.0.1:2379", "spec.etcdEndpoints is missing")
	}
	return access, nil
}
