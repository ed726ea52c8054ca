"""Diffusion and flow matching: from noise to data by small steps."""

from margin.core.catalog import KNOWN, TRAINING, Claim, Cost, Entry, Need, Part

DENOISING = {
    "max_steps": 10_000,
    "batch_size": 128,
    "lr": 2e-3,
    "schedule": "cosine",
    "average": 0.995,
    "evaluate_every": 500,
    "clip": 1.0,
    "optimizer_options": {"weight_decay": 0.0},
}
"""A diffusion's loss is mostly the noise it draws: many steps, whose average counts."""

DENOISING_IMAGES = {
    **DENOISING,
    "max_steps": 4000,
    "batch_size": 64,
    "lr": 1e-3,
    "average": 0.995,
    "scale": "symmetric",
}
"""What a U-Net learns of small images in minutes; the chain's last step is about pixels in [-1, 1]."""

DIFFUSION = Need("a diffusion", model="margin.generative.diffusion.model:Diffusion")

MIDDLE = Need(
    "a diffusion of two steps or more, with some of the data left after the second",
    "margin.generative.diffusion.chain_claims:has_middle",
)

NOISED = Cost(passes=9, limit=512)
HO_2021 = "Ho and Salimans 2021, Algorithm 1"
LIPMAN_2023 = "Lipman et al. 2023, Equation 23; Liu, Gong and Liu 2023, Equation 1"
HO_2020 = "Ho, Jain and Abbeel 2020, Equations 6, 7 and 11"
DDPM_SAMPLING = "Ho, Jain and Abbeel 2020, Algorithm 2"
SONG_2021 = "Song, Meng and Ermon 2021, Equation 7; Ho, Jain and Abbeel 2020, Equation 7"
EFRON_2011 = "Efron 2011, Section 1; Vincent 2011, Section 4.2"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("generative/diffusion",
        ".networks:diffusion", "margin.core.tasks:DENSITY", "margin.data.sets.tiny.tables:values",
        "Denoising diffusion (DDPM) of rows: a chain to noise, and a network that reverses it",
        "Ho, Jain and Abbeel 2020, Algorithm 1", objective=".model:denoising_loss",
        defaults=DENOISING, covers=("diff.eps_loss", "diff.ddpm_sampling")),
    Entry("generative/conditional_diffusion",
        ".networks:conditional_diffusion", "margin.core.tasks:DENSITY", "margin.data.sets.tiny.tables:moons",
        "Class-conditional diffusion of rows, with classifier-free guidance", HO_2021,
        objective=".model:conditional_denoising_loss", defaults=DENOISING, covers=("diff.cfg",)),
    Entry("generative/image_diffusion",
        ".networks:image_diffusion", "margin.core.tasks:DENSITY", "margin.data.sets.tiny.tables:images",
        "Denoising diffusion (DDPM) of images: a chain to noise, and a U-Net that reverses it",
        "Ho, Jain and Abbeel 2020, Algorithm 1 and Appendix B", objective=".model:denoising_loss",
        defaults=DENOISING_IMAGES, covers=("diff.eps_loss", "diff.ddpm_sampling")),
    Entry("generative/conditional_image_diffusion",
        ".networks:conditional_image_diffusion", "margin.core.tasks:DENSITY",
        "margin.data.sets.tiny.tables:images",
        "Class-conditional diffusion of images by a U-Net, with classifier-free guidance", HO_2021,
        objective=".model:conditional_denoising_loss", defaults=DENOISING_IMAGES,
        covers=("diff.cfg",)),
    Entry("generative/flow_matching",
        ".networks:flow_matching", "margin.core.tasks:DENSITY", "margin.data.sets.tiny.tables:values",
        "Flow matching (rectified flow) of rows: a velocity learned along straight paths from noise",
        LIPMAN_2023,
        objective=".model:denoising_loss", defaults=DENOISING, covers=("flow.change_of_variables",)),
    Entry("generative/conditional_flow_matching",
        ".networks:conditional_flow_matching", "margin.core.tasks:DENSITY",
        "margin.data.sets.tiny.tables:moons",
        "Class-conditional flow matching of rows, with classifier-free guidance",
        "Lipman et al. 2023, Equation 23; Ho and Salimans 2021, Algorithm 1",
        objective=".model:conditional_denoising_loss", defaults=DENOISING, covers=("diff.cfg",)),
    Entry("generative/image_flow_matching",
        ".networks:image_flow_matching", "margin.core.tasks:DENSITY", "margin.data.sets.tiny.tables:images",
        "Flow matching (rectified flow) of images: the velocity is a U-Net", LIPMAN_2023,
        objective=".model:denoising_loss", defaults=DENOISING_IMAGES,
        covers=("flow.change_of_variables",)),
)

PARTS: tuple[Part, ...] = (
    Part("generative/unet.from_diffusers", "function", "margin.nn.unet.diffusers_weights:from_diffusers",
        "The U-Net with the weights of a UNet2DModel of the library diffusers: the same function",
        "von Platen et al. 2022, diffusers, UNet2DModel, Section Parameters"),
    Part("generative/forward_process", "function", ".process:chain",
        "Forward diffusion: noise added step by step, or at once (x_t given x_0)",
        "Ho, Jain and Abbeel 2020, Equations 2 and 4",
        covers=("diff.forward",)),
    Part("generative/diffusion_posterior", "function", ".process:posterior",
        "Diffusion posterior: an earlier step given a later one and the data, in three forms", HO_2020,
        covers=("diff.posterior",)),
    Part("generative/noise_schedule", "function", ".process:schedule_of",
        "Noise schedule: linear or cosine, with or without zero terminal signal",
        "Ho, Jain and Abbeel 2020, Section 4; Nichol and Dhariwal 2021, Equation 17",
        covers=("diff.forward",)),
    Part("generative/diffusion_weights", "loss", ".model:weights",
        "Loss weights of the evidence bound, step by step, where noise, data or v is predicted",
        "Ho, Jain and Abbeel 2020, Equation 12; Salimans and Ho 2022, Section 4",
        covers=("diff.elbo", "diff.eps_loss")),
    Part("generative/ddpm", "function", ".samplers:ddpm",
        "DDPM ancestral sampling: the learned reverse chain, step by step or by strides",
        DDPM_SAMPLING, covers=("diff.ddpm_sampling",)),
    Part("generative/ddim", "function", ".samplers:ddim",
        "DDIM sampling over any subsequence of steps, with noise eta or deterministic",
        "Song, Meng and Ermon 2021, Equations 12 and 16", covers=("diff.ddim",)),
    Part("generative/reverse_sde", "function", ".samplers:reverse_sde",
        "Reverse SDE sampling by the method of Euler and Maruyama",
        "Song et al. 2021, Equation 6", covers=("diff.sde",)),
    Part("generative/probability_flow", "function", ".samplers:euler",
        "Probability-flow ODE sampling by Euler's method in the chain's time",
        "Song et al. 2021, Equation 13", covers=("diff.sde",)),
    Part("generative/probability_flow.heun", "function", ".samplers:heun",
        "Probability-flow ODE sampling by Heun's method in the noise-to-signal ratio",
        "Karras, Aittala, Aila and Laine 2022, Algorithm 1", covers=("diff.sde",)),
    Part("generative/probability_flow.multistep", "function", ".samplers:multistep",
        "Probability-flow ODE sampling by DPM-Solver++ (2M)",
        "Lu, Zhou, Bao, Chen, Li and Zhu 2022, Algorithm 2", covers=("diff.sde",)),
    Part("generative/linear_gaussian_law", "fact", ".exact:law_of",
        "The distribution of each sampler's samples for Gaussian data and the exact denoiser", SONG_2021,
        covers=("diff.ddpm_sampling", "diff.ddim", "diff.sde")),
    Part("generative/exact_denoiser", "fact", ".exact:Mixture",
        "Optimal denoiser (Tweedie) and score of noisy data for a mixture of Gaussians", EFRON_2011,
        covers=("diff.score", "diff.eps_loss")),
    Part("generative/guidance", "function", ".samplers:guided",
        "Classifier-free guidance: the noise of a class, extrapolated from that of none",
        "Ho and Salimans 2021, Equation 6",
        covers=("diff.cfg",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("generative/diffusion.energy", ".chain_claims:conservation", ".chain_claims:demo",
        "Do noisy examples have the energy that the chain promises?", "Ho, Jain and Abbeel 2020, Equation 2",
        needs=(DIFFUSION,), cost=NOISED, by_name=KNOWN, covers=("diff.energy_conservation",)),
    Claim("generative/diffusion.end", ".chain_claims:end", ".chain_claims:demo",
        "Terminal signal: how many nats of an example are left at the end of the chain?",
        "Ho, Jain and Abbeel 2020, Section 4; Lin, Liu, Li and Yang 2024, Section 3.1", needs=(DIFFUSION,),
        covers=("diff.forward", "diff.elbo")),
    Claim("generative/diffusion.posterior", ".chain_claims:posteriors", ".chain_claims:demo",
        "Do the three forms of the diffusion posterior agree?",
        HO_2020, needs=(DIFFUSION, MIDDLE), by_name=KNOWN,
        covers=("diff.posterior",)),
    Claim("generative/diffusion.weights", ".chain_claims:divergences", ".chain_claims:demo",
        "Is the weighted error of a prediction a divergence of Gaussians?",
        "Ho, Jain and Abbeel 2020, Equation 12", needs=(DIFFUSION, MIDDLE), cost=NOISED, by_name=KNOWN,
        covers=("diff.eps_loss", "diff.elbo")),
    Claim("generative/diffusion.entropy", ".chain_claims:entropy", ".chain_claims:demo",
        "Is a step back no less certain than a step forth?",
        "Sohl-Dickstein, Weiss, Maheswaranathan and Ganguli 2015, Section 2.6", by_name=KNOWN,
        needs=(DIFFUSION, MIDDLE), covers=("diff.entropy_bound",)),
    Claim("generative/diffusion.bound", ".network_claims:bound", ".chain_claims:demo",
        "Evidence lower bound: its value on held-out examples, and its terms",
        "Ho, Jain and Abbeel 2020, Equation 5", needs=(DIFFUSION,), cost=Cost(passes=16, limit=512),
        covers=("diff.elbo",)),
    Claim("generative/diffusion.affine", ".network_claims:affine", ".chain_claims:demo",
        "Does the network err less than the best affine map of noisy examples?", EFRON_2011,
        needs=(DIFFUSION, TRAINING), cost=NOISED, covers=("diff.eps_loss", "diff.score")),
    Claim("generative/sampler.recursion", ".network_claims:recursion", ".chain_claims:demo",
        "Is each sampler, on Gaussian data of the examples' moments, its known affine map?", SONG_2021,
        needs=(DIFFUSION,), by_name=KNOWN, covers=("diff.ddim", "diff.sde", "diff.ddpm_sampling")),
    Claim("generative/sampler.steps", ".network_claims:steps", ".chain_claims:long_demo",
        "How far are samples moved by the length of a sampler's steps?",
        "Song et al. 2021, Equation 13; Karras, Aittala, Aila and Laine 2022, Algorithm 1",
        needs=(DIFFUSION,), cost=Cost(passes=650, limit=128), covers=("diff.ddim", "diff.sde")),
    Claim("generative/diffusion.film", ".network_claims:film", ".chain_claims:demo",
        "Do samples have the energy of noisy examples on the way back from noise?", DDPM_SAMPLING,
        needs=(DIFFUSION,), cost=Cost(passes=200, limit=256), covers=("diff.ddpm_sampling",),
        figure=".figures:film"),
)
# fmt: on
