"""What power does a chip draw, how warm is it, what does the wall see, what is the least energy nature allows?"""
