// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/kubevirt"
)

// Seed is a file system for cloud-init, which finds it by its label.
type Seed struct {
	Label string
	// Files has the contents by path.
	Files map[string]string
}

// noCloud sets the seed of cloud-init's NoCloud data source.
func (d document) noCloud(disk *Disk, s kubevirt.CloudInitNoCloudSource, at *field.Path) error {
	about := map[string]string{"instance-id": d.instanceID(), "local-hostname": d.hostname()}
	return seed(disk, s, at, Seed{Label: "cidata"}, [3]string{"meta-data", "user-data", "network-config"}, about)
}

// configDrive sets the seed of cloud-init's ConfigDrive data source.
func (d document) configDrive(disk *Disk, s kubevirt.CloudInitConfigDriveSource, at *field.Path) error {
	const dir = "openstack/latest/"
	about := map[string]string{"instance_id": d.instanceID(), "uuid": d.instanceID(), "hostname": d.hostname()}
	return seed(disk, kubevirt.CloudInitNoCloudSource(s), at, Seed{Label: "config-2"},
		[3]string{dir + "meta_data.json", dir + "user_data", dir + "network_data.json"}, about)
}

// seed sets the files of a seed: the metadata, the user data and the network data, under their names. A disk whose data
// is in a Secret of the cluster gets no seed.
func seed(
	disk *Disk, s kubevirt.CloudInitNoCloudSource, at *field.Path, out Seed, names [3]string, about map[string]string,
) error {
	disk.Kind = CloudInit
	if s.UserDataSecretRef != nil || s.NetworkDataSecretRef != nil {
		return nil
	}
	user, err := decode(at.Child("userDataBase64"), s.UserData, s.UserDataBase64)
	if err != nil {
		return err
	}
	network, err := decode(at.Child("networkDataBase64"), s.NetworkData, s.NetworkDataBase64)
	if err != nil {
		return err
	}
	meta, _ := json.Marshal(about) // strings can always be marshaled
	out.Files = map[string]string{names[0]: string(meta), names[1]: user}
	if network != "" {
		out.Files[names[2]] = network
	}
	disk.Seed = &out
	return nil
}

// decode returns a text that may be encoded in base64.
func decode(at *field.Path, text, coded string) (string, error) {
	if coded == "" {
		return text, nil
	}
	b, err := base64.StdEncoding.DecodeString(coded)
	if err != nil {
		return "", model.Errorf(model.CodeInvalidConf, "", "%s: %w", at, err)
	}
	return string(b), nil
}

func (d document) instanceID() string {
	return d.meta.Name + "." + cmp.Or(d.meta.Namespace, metav1.NamespaceDefault)
}

func (d document) hostname() string { return cmp.Or(d.instance.Hostname, d.meta.Name) }
